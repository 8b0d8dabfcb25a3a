"""How a side's kernel is called: by its mode where that names it, else by what its bits and its tape tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import FlowNode, Side, flow_of
from numdrift.harness.localize.causes.found_culprits import Describer
from numdrift.harness.localize.causes.kernel_names import kernel_of
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.suspects import Suspect
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.verification import Found
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.records.modes.mode_registry import ModeEntry, registry
from numdrift.harness.tape.tape import CompiledNode

from .pairs import Small, noise_of, nothing, sides, taped


def node_of(name: str, module: str | None, origin: str = "") -> FlowNode:
    """A call of a tape; with `origin` one of a compiled graph, which was decomposed from that op."""

    def work(watch: Callable[[str, Tensor], None]) -> None:
        x = torch.rand(3, 3)
        watch("y", (x.tanh() @ x.t()).sum(0) * 2)

    found = next(node for node in flow_of(taped(work)).nodes if node.call.name == name)
    compiled = CompiledNode("0 forward", name, origin, 0) if origin else None
    call = replace(found.call, module=module, compiled=compiled)
    return replace(found, execution=replace(found.execution, call=call))


@pytest.mark.parametrize(
    ("spec", "name", "origin", "special", "expected"),
    [
        ("cpu", "tanh", "", False, "aten"),
        ("cpu", "tanh", "", True, None),
        ("lazy", "tanh", "", False, "aten"),
        ("lazy", "tanh", "", True, None),
        ("other=cpu,env.FAULT=1", "mm", "", True, None),
        ("lazy,kernel.tanh=bf16", "tanh", "", True, "bf16"),
        ("cpu,kernel.aten.tanh@net=fma", "tanh", "", True, "fma"),
        ("cpu,kernel.tanh@net.1=fma", "tanh", "", True, "fma"),
        ("cpu,kernel.tanh@net.10=fma", "tanh", "", True, None),
        ("cpu,kernel.tanh@net.10=fma", "tanh", "", False, "aten"),
        ("cpu,kernel.tanh@net.1:0=fma", "tanh", "", True, None),
        ("cpu,kernel.sum.dim_IntList=kahan", "sum", "", True, "kahan"),
        ("cpu,kernel.sum.default=kahan", "sum", "", True, None),
        ("cpu,kernel.tanh=mine.py", "tanh", "", True, "mine.py"),
        ("compile", "mul", "aten.tanh_backward.default", False, "decomposed"),
        ("compile", "mul", "aten.tanh_backward.default", True, "decomposed"),
        ("compile", "tanh", "aten.tanh.default", True, "inductor"),
        ("compile", "sum", "aten.sum.dim_IntList", True, "inductor"),
        ("compile", "tanh", "aten.tanh.default", False, None),
        ("compile", "mm", "aten.mm.default", True, None),
        ("compile,kernel.tanh=bf16", "tanh", "aten.tanh.default", True, "bf16"),
        ("compile,kernel.tanh@net.1:0=bf16", "tanh", "aten.tanh.default", True, None),
        ("compile,decompose.tanh=off", "tanh", "aten.tanh.default", True, "aten"),
        ("compile,backend=aot_eager", "tanh", "aten.tanh.default", False, "aten"),
        ("compile,backend=aot_eager", "tanh", "aten.tanh.default", True, None),
        ("compile,backend=openxla", "tanh", "aten.tanh.default", True, None),
        ("cuda", "tanh", "", False, None),
        ("", "tanh", "", False, None),
    ],
)
def test_a_kernel_is_named_as_far_as_it_is_known(
    spec: str, name: str, origin: str, special: bool, expected: str | None
) -> None:
    found = Found(foreign={7}) if special else Found()
    assert kernel_of(spec, [(7, node_of(name, "net.1", origin))], found, checked=True) == expected


def test_a_kernel_of_a_mode_from_a_plug_in_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._entries, "plugged", ModeEntry("plugged", "package:Mode", "plug-in"))
    assert kernel_of("plugged", [(7, node_of("tanh", "net.1"))], Found(), checked=True) is None


def test_a_swap_of_one_module_is_not_told_of_a_call_without_module() -> None:
    node = node_of("tanh", None)
    assert kernel_of("cpu,kernel.tanh@net.1=fma", [(7, node)], Found(), checked=True) is None


def test_calls_of_several_kernels_have_no_name() -> None:
    nodes = [(1, node_of("tanh", "net.1")), (2, node_of("tanh", "net.2"))]
    assert kernel_of("cpu,kernel.tanh@net.1=fma", nodes, Found(), checked=True) is None
    assert kernel_of("cpu,kernel.tanh@net=fma", nodes, Found(), checked=True) == "fma"


@pytest.mark.parametrize("found", [Found(unknown={7}), Found(in_context={7}), Found()])
def test_bits_that_nobody_knows_tell_no_kernel(found: Found) -> None:
    checked = bool(found.unknown or found.in_context)
    assert kernel_of("cpu", [(7, node_of("tanh", ""))], found, checked=checked) is None


def test_only_a_kernel_has_the_names_of_kernels() -> None:
    def eps(training: Small) -> None:
        training.net.layers[1].norm.eps = 1e-3  # type: ignore[union-attr]

    two = sides(Small, eps)
    held: dict[Side, StepSide] = {"a": StepSide(two.a, "a", spec="cpu"), "b": StepSide(two.b, "b", spec="cpu")}
    (culprit,) = localize_step(held, noise_of(two.a), 16.0, print).culprits
    assert (culprit.kind, culprit.kernel) == ("arguments", None)


def test_a_backward_that_goes_with_its_forward_is_one_of_its_kernels() -> None:
    # given a gelu and its backward, other kernels that can be swapped together only, and what lies between
    pair = sides(Small, nothing).pair()
    names = [[pair.flows["a"].nodes[node].call.name for node in block.a] for block in pair.blocks]
    lead, behind, between = (names.index([name]) for name in ("gelu", "gelu_backward", "mul"))
    examined: Any = {
        number: SimpleNamespace(differs=differs, suspect=Suspect(number, "kernel", ()))
        for number, differs in ((lead, True), (behind, None), (between, False))
    }
    site = SwapSite(frozenset([lead, behind, between]), lead)
    ops: dict[Side, tuple[str, ...]] = {"a": ("gelu",), "b": ("mul", "erf", "mul")}
    describer = Describer(pair, examined, SimpleNamespace(), 16.0, lambda side, numbers: None, {})  # type: ignore[arg-type]

    def beside(kind: Any) -> list[str]:
        return describer._beside(Cause(kind, "forward", ops, (), (site,)))

    assert beside("kernel") == ["gelu_backward"]
    assert beside("arguments") == []

"""What can be swapped alone: ops are joined to what they need from their own side, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import SwapSite, sites_of
from numdrift.harness.localize.execute.hybrid import Hybrid, execute
from numdrift.harness.localize.execute.tape_pair import TapePair, paired
from numdrift.harness.tape.tape import Call, CompiledNode, Phase, Tape

from .pairs import differing, taped

Watch = Callable[[str, Tensor], None]
Label = Callable[[int, Call], Call]

FACTORS = {3, 6}
"""The numbers of the nodes that multiply by a factor which only one side has."""

X, Y = torch.linspace(-1, 1, 8), torch.linspace(0.1, 2, 8)


def labelled(tape: Tape, label: Label) -> Tape:
    return replace(tape, calls=tuple(label(number, call) for number, call in enumerate(tape.calls)))


def sites(one: Tape, other: Tape) -> tuple[TapePair, list[SwapSite]]:
    pair = paired(flow_of(one), flow_of(other))
    return pair, sites_of(pair, examine(pair, suspects(pair)))


def test_zeros_that_all_layers_read_do_not_join_the_layers() -> None:
    """A compiled backward makes zeros once, and every layer scatters its gradients into them."""

    def stacked(watch: Watch) -> None:
        for name, value in ("first", X), ("second", Y):
            watch(name, torch.stack([value.exp(), value.sin()]).tanh())

    def scattered(watch: Watch) -> None:
        zeros = torch.full((2, 8), 0.0)
        for name, value, factor in ("first", X, 1.0), ("second", Y, 1.5):
            rows = zeros.select_scatter(value.exp(), 0, 0), zeros.select_scatter(value.sin() * factor, 0, 1)
            watch(name, (rows[0] + rows[1]).tanh())

    one, other = taped(stacked), taped(scattered)
    pair, found = sites(one, other)

    scattering = [site for site in found if any("select_scatter" in pair.all_names(number) for number in site.blocks)]
    assert len(scattering) == 2
    for site, name in zip(scattering, ("first", "second"), strict=True):
        assert execute(pair, Hybrid("a", site.blocks))[name].equal(other.expected()[name])
        others = {"first", "second"} - {name}
        assert all(execute(pair, Hybrid("a", site.blocks))[each].equal(one.expected()[each]) for each in others)
    assert not differing(
        execute(pair, Hybrid("b", frozenset().union(*(site.blocks for site in found)))), one.expected()
    )


def test_backwards_are_no_pair_if_their_forwards_are_none() -> None:
    """Side b scales what a dropout returns. In the backward, side a has one product, and side b has the factor first."""
    mask = (X > -0.5).float()

    def dropped(watch: Watch) -> None:
        watch("loss", (X * mask).exp())
        watch("gradient", (Y.sin() * mask).cos())

    def scaled(watch: Watch) -> None:
        watch("loss", (X.neg().neg().mul(mask) * 1.02).exp())
        watch("gradient", ((Y.sin() * 1.02).neg().neg().mul(mask)).cos())

    def label_a(number: int, call: Call) -> Call:
        phase: Phase = "forward" if number < 2 else "backward"
        drops = call.name == "mul"
        return replace(call, module="drop" if drops else "model", phase=phase, sequence=1 if drops else None)

    def label_b(number: int, call: Call) -> Call:
        phase: Phase = "forward" if number < 5 else "backward"
        if number in FACTORS:
            return replace(call, module="", phase=phase, sequence=-2)
        if call.name not in ("neg", "mul"):
            return replace(call, module="model", phase=phase)
        origin = f"aten.native_dropout{'_backward' if phase == 'backward' else ''}.default"
        node = CompiledNode(f"0 {phase}", call.name, origin, 1)
        return replace(call, module="drop", phase=phase, sequence=-1, compiled=node)

    pair, _ = sites(labelled(taped(dropped), label_a), labelled(taped(scaled), label_b))

    factors = [number for number, block in enumerate(pair.blocks) if FACTORS.intersection(block.b)]
    assert [(pair.names(number, "a"), pair.names(number, "b")) for number in factors] == [([], ["mul"]), ([], ["mul"])]


def test_a_sum_of_gradients_is_not_joined_to_an_op_of_the_outermost_module() -> None:
    """The sums of gradients of a compiled backward have the outermost module, in which side b has a factor, too."""

    def split(watch: Watch) -> None:
        watch("loss", (X.exp() + 1).sqrt())
        watch("gradient", torch.stack([Y.exp(), Y.sin()]).tanh())

    def summed(watch: Watch) -> None:
        watch("loss", ((X.exp() + 1) * 1.02).sqrt())
        zeros = torch.full((2, 8), 0.0)
        watch("gradient", (zeros.select_scatter(Y.exp(), 0, 0) + zeros.select_scatter(Y.sin(), 0, 1)).tanh())

    def label(number: int, call: Call) -> Call:
        forward = number < (4 if call.name in ("mul", "sqrt") else 3)
        module = "" if call.name in ("add", "mul") else "layer"
        return replace(call, module=module, phase="forward" if forward else "backward")

    pair, found = sites(labelled(taped(split), label), labelled(taped(summed), label))

    joined = [set().union(*(pair.names(number, "b") for number in site.blocks)) for site in found]
    assert sorted(map(sorted, joined)) == [["add", "select_scatter"], ["mul"]]


def test_a_mask_for_the_backward_is_no_rewritten_forward() -> None:
    """A compiled forward computes a ReLU's mask. In the backward of the same module, side b has a factor."""

    def plain(watch: Watch) -> None:
        watch("loss", X.exp())
        watch("masked", torch.ops.aten.threshold_backward(Y, X, 0))
        watch("gradient", Y.exp().tanh())

    def compiled(watch: Watch) -> None:
        watch("loss", X.exp())
        mask = X.le(0)
        watch("masked", torch.where(mask, 0.0, Y))
        watch("gradient", (Y.exp() * 1.02).tanh())

    def label(number: int, call: Call) -> Call:
        module = "" if call.name in ("mul", "le", "where", "threshold_backward") else "layer"
        phase: Phase = "forward" if number == 0 or call.name == "le" else "backward"
        node = CompiledNode(f"0 {phase}", call.name, "aten.threshold_backward.default", 1)
        return replace(call, module=module, phase=phase, compiled=node if call.name in ("le", "where") else None)

    pair, found = sites(labelled(taped(plain), label), labelled(taped(compiled), label))

    joined = [set().union(*(pair.names(number, "b") for number in site.blocks)) for site in found]
    assert sorted(map(sorted, joined)) == [["le", "scalar_tensor", "where"], ["mul"]]

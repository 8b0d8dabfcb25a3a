"""A branch that the script takes on one side only is one cause, with the comparison that decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.tape.tape import CompiledNode, Tape

from .pairs import THRESHOLD, Layer, Plant, Small, localized, sides, taped
from .test_localize_step import eps, is_proven


def amount(t: Small, h: Tensor) -> Tensor:
    layer = t.net.layers[1]
    assert isinstance(layer, Layer)
    found: Tensor = layer.norm(h.detach()).abs().mean()
    return found


def values() -> tuple[float, float]:
    """What the branch looks at, without and with the fault."""
    seen: list[float] = []

    def looked(t: Small) -> None:
        def between(h: Tensor) -> Tensor:
            seen.append(float(amount(t, h)))
            return h

        t.net.between = between

    sides(Small, eps, before=looked)
    return seen[-2], seen[-1]


def branching(edge: float, decides: Callable[[Tensor, float], bool]) -> Plant:
    """The second layer's input is squashed where its norm passes the edge."""

    def plant(t: Small) -> None:
        t.net.between = lambda h: torch.tanh(h) * 0.5 if decides(amount(t, h), edge) else h

    return plant


@pytest.mark.parametrize(
    ("decides", "expression"),
    [
        (lambda value, edge: bool(value > edge), "gt("),
        (lambda value, edge: value.item() > edge, "mean("),
    ],
    ids=["a comparison of tensors", "a number that was read"],
)
def test_the_deciding_comparison_is_named(decides: Callable[[Tensor, float], bool], expression: str) -> None:
    one, other = values()
    edge = (one + other) / 2
    found = localized(sides(Small, eps, before=branching(edge, decides)))
    branches = [culprit for culprit in found.culprits if "a different branch" in " ".join(culprit.reasons)]
    assert len(branches) == 1
    [branch] = branches
    assert branch.kind == "structure" and is_proven(branch)
    decision = branch.reasons[0]
    assert "a different branch at " in decision and expression in decision
    assert "in first" in decision and "in second" in decision
    if expression == "gt(":
        numbers = [float(text.split("gt(")[1].split(",")[0]) for text in decision.split(" is ")[:2]]
        assert numbers == pytest.approx([one, other], rel=1e-6)
        assert {"is True in", "is False in"} <= {f"is {word} in" for word in decision.replace(",", "").split()}
    assert any("tanh" in [*culprit.ops["a"], *culprit.ops["b"]] for culprit in branches)


def test_where_both_sides_decide_alike_no_branch_is_told() -> None:
    edge = min(values()) / 2
    found = localized(sides(Small, eps, before=branching(edge, lambda value, edge: bool(value > edge))))
    assert found.culprits
    assert not any("branch" in reason for culprit in found.culprits for reason in culprit.reasons)


def test_a_decomposition_after_a_number_that_was_printed_is_no_branch() -> None:
    """The printed number, the loss of the step before, differs, and is read before anything is computed."""
    x = torch.linspace(-1.0, 1.0, 12).reshape(3, 4).square()

    def step(previous: float, normalized: Callable[[Tensor], Tensor]) -> Tape:
        loss = torch.tensor(previous)

        def work(watch: Callable[[str, Tensor], None]) -> None:
            loss.item()
            watch("loss 0", normalized(x).exp().sum())

        return taped(work)

    def decomposed(values: Tensor) -> Tensor:
        centred = values - values.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)

    left, right = step(0.5, lambda values: torch.layer_norm(values, (4,))), step(0.625, decomposed)
    parts = [
        replace(call, compiled=CompiledNode("0 forward", f"node_{number}", "aten.native_layer_norm.default", number))
        if call.name not in ("_local_scalar_dense", "exp", "sum")
        else call
        for number, call in enumerate(right.calls)
    ]
    right = replace(right, calls=tuple(parts))
    held = {"a": StepSide(left, "first"), "b": StepSide(right, "second")}
    noise = Noise(0, 0, {"loss 0": TensorNoise(1e-7, float(left.expected()["loss 0"]))})
    found = localize_step(held, noise, THRESHOLD, lambda text: None)  # type: ignore[arg-type]
    assert [culprit.kind for culprit in found.culprits if culprit.op] == ["structure"]
    assert not any("branch" in reason for culprit in found.culprits for reason in culprit.reasons)

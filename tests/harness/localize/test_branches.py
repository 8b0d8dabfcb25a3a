"""A branch that the script takes on one side only is one cause, with the comparison that decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from .pairs import Layer, Plant, Small, localized, sides
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

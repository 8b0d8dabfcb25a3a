"""Epsilon of a norm that one side has taken apart."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from numdrift.harness.localize.align.argument_differences import epsilon_difference

NORM = torch.ops.aten.native_layer_norm.default


def node(name: str, *arguments: Any, operation: Any = None) -> Any:
    call = SimpleNamespace(name=name, arguments=arguments, keywords={})
    return SimpleNamespace(call=call, execution=SimpleNamespace(operation=operation))


def whole(eps: float) -> list[Any]:
    return [node("native_layer_norm", "x", [16], "w", "b", eps, operation=NORM)]


def parts(eps: float, *further: Any) -> list[Any]:
    """As Inductor takes a layer norm apart: the bias is added, too."""
    return [node("var_mean", "x"), node("add", "var", eps), node("rsqrt", "sum"), node("add_", "y", "b"), *further]


@pytest.mark.parametrize(("mine", "yours"), [(1e-5, 1e-3), (1e-3, 1e-5)])
def test_another_epsilon_is_named_from_either_side(mine: float, yours: float) -> None:
    assert epsilon_difference(whole(mine), parts(yours)) == [f"eps: {mine:g} against {yours:g}"]
    assert epsilon_difference(parts(mine), whole(yours)) == [f"eps: {mine:g} against {yours:g}"]


def test_the_same_epsilon_in_another_precision_is_none() -> None:
    rounded = float(torch.tensor(1e-5))
    assert rounded != 1e-5 and epsilon_difference(whole(1e-5), parts(rounded)) == []


@pytest.mark.parametrize("instead", [parts(1e-3, node("add", "z", 2.0)), [node("rsqrt", "x"), node("mul", "y", 1e-3)]])
def test_where_it_is_not_plain_which_number_it_is_nothing_is_said(instead: list[Any]) -> None:
    assert epsilon_difference(whole(1e-5), instead) == []


def test_an_op_without_epsilon_has_none() -> None:
    gelu = [node("gelu", "x", operation=torch.ops.aten.gelu.default)]
    assert epsilon_difference(gelu, [node("add", "x", 1.0), node("mul", "x", math.sqrt(0.5))]) == []

"""Draws of two runs, made by hand, and the one that a run makes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from numdrift.harness.drift.setup.draw_difference import extra_draw
from numdrift.harness.records.values.call_record import CallRecord


def draws(*made: str, generator: str = "torch") -> list[CallRecord]:
    """`dropout:12` draws in line 12; a state is all that was drawn before it. `:4` is a line that calls no op."""
    found, state = [], ""
    for one in made:
        op, _, line = one.partition(":")
        after = f"{state}/{one}"
        found.append(
            CallRecord(0, op and f"aten.{op}.default", f"train.py:{line}", "forward", drew=[(generator, state, after)])
        )
        state = after
    return found


@pytest.mark.parametrize(
    ("a", "b", "side", "line"),
    [
        (["rand:1", "dropout:2"], ["rand:1", "bernoulli:9", "dropout:2"], "b", 9),
        (["rand:1", "dropout:2", "rand:3"], ["rand:1", "rand:3"], "a", 2),
        (["rand:1"], ["rand:1", "rand:1"], "b", 1),
        (["rand:1", "dropout:2"], ["rand:1"], "a", 2),
        ([":4", ":5"], [":4", ":8", ":5"], "b", 8),
        # in a compiled graph the lines are others: the op tells
        (["rand:1", "bernoulli_:2"], ["rand:1", "randint:6", "bernoulli:7"], "b", 6),
        (["rand:1", "dropout:2"], ["rand:1", "randint:6"], "both", 6),
    ],
)
def test_the_draw_of_one_side_alone(a: Sequence[str], b: Sequence[str], side: str, line: int) -> None:
    found = extra_draw(draws(*a), draws(*b), "torch")

    assert found is not None
    assert (found.side, found.call.line) == (side, f"train.py:{line}")
    assert found.after is None or found.after.line in ("train.py:1", "train.py:4")


def test_equal_draws_and_those_from_another_generator_differ_in_nothing() -> None:
    assert extra_draw(draws("rand:1", "rand:2"), draws("rand:1", "rand:2"), "torch") is None
    assert extra_draw(draws("rand:1"), draws("rand:1") + draws(":5", generator="python"), "torch") is None


def test_one_line_that_moves_a_generator_otherwise() -> None:
    one, other = ([CallRecord(2, "", "train.py:4", "data", drew=[("torch", "s", after)])] for after in "pq")

    found = extra_draw(one, other, "torch")

    assert found is not None and found.side == "both" and found.seeded and found.step == 2


def test_of_two_other_draws_that_of_a_module_is_named() -> None:
    ours, theirs = draws("bernoulli_:2"), draws("randint:6")
    ours = [replace(one, module="drop") for one in ours]
    found = extra_draw(ours, theirs, "torch")
    assert found is not None and (found.side, found.call) == ("both", ours[0])
    theirs = [replace(one, module="drop") for one in theirs]
    found = extra_draw(ours, theirs, "torch")
    assert found is not None and found.call == theirs[0]

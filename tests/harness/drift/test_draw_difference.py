"""Draws of two runs, made by hand, and the one that a run makes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from numdrift.harness.drift.setup.draw_difference import extra_draw
from numdrift.harness.investigate.words.repetition_words import draw_sentence
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


def step(*calls: str) -> list[CallRecord]:
    """`forward mask:13 x s>t` makes a mask for the values x in line 13, and draws it: state s becomes t."""
    made: list[CallRecord] = []
    for number, call in enumerate(calls):
        phase, op, values, states = call.split()
        name, _, line = op.partition(":")
        before, _, after = states.partition(">")
        place = f"train.py:{line}"
        made += [
            CallRecord(0, "aten.empty_like.default", place, phase, tensors=[(number, values)]),
            CallRecord(0, "aten.detach.default", place, phase, tensors=[(number, values)]),
            CallRecord(
                0, f"aten.{name}.float", place, phase, tensors=[(90 + number, "noise")], written=[0],
                drew=[("torch", before, after)],
            ),
        ]  # fmt: skip
    return made


FORWARD = ("forward mask:13 x r>s", "forward mask:13 y s>t")


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        # only b recomputes; the last block comes first
        ((), ("backward mask:13 y t>u", "backward mask:13 x u>v"), "y"),
        # the recomputation has lines of its own
        ((), ("backward mask:24 x t>u",), "x"),
        # both recompute, and a from the state of its forward
        (("backward mask:13 y s>t",), ("backward mask:13 y t>u",), "y"),
    ],
)
def test_a_recomputation_that_draws_anew_names_the_draw_of_the_forward(
    a: Sequence[str], b: Sequence[str], values: str
) -> None:
    found = extra_draw(step(*FORWARD, *a), step(*FORWARD, *b), "torch")
    assert found is not None and found.forward is not None
    assert list(found.forward.drew) == [("torch", "s", "t") if values == "y" else ("torch", "r", "s")]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ("backward mask:13 g t>u",)),  # noise on a gradient
        ((), ("backward other:13 y t>u",)),  # another op
        ((), ("forward mask:13 y t>u",)),  # a second draw in the forward
        (("backward mask:13 y t>w",), ("backward mask:13 y t>u",)),  # both draw anew
    ],
)
def test_other_draws_are_no_recomputation(a: Sequence[str], b: Sequence[str]) -> None:
    found = extra_draw(step(*FORWARD, *a), step(*FORWARD, *b), "torch")
    assert found is not None and found.forward is None


def test_the_sentence_names_both_places_and_the_remedy() -> None:
    found = extra_draw(step(*FORWARD), step(*FORWARD, "backward mask:24 x t>u"), "torch")
    assert found is not None
    sentence = draw_sentence(found, "torch", "plain", "checkpointed")
    assert sentence == (
        "in step 0 aten.mask in the forward, train.py:13 is drawn again, with different numbers, by a recomputation in "
        "the backward at train.py:24 of checkpointed; keep the state of the generator for the recomputation "
        "(in torch.utils.checkpoint, preserve_rng_state=True)"
    )

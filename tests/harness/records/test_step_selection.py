from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import UsageError
from numdrift.harness.records.run.step_selection import KeepParams, StepSelection

steps = st.integers(0, 30)
open_ranges = st.tuples(steps, st.none())
closed_ranges = st.tuples(steps, steps).map(lambda pair: (min(pair), max(pair)))
ranges: st.SearchStrategy[tuple[int, int | None]] = open_ranges | closed_ranges


def covered(ranges: list[tuple[int, int | None]], step: int) -> bool:
    return any(step in range(first, 1000 if last is None else last + 1) for first, last in ranges)


@given(st.lists(ranges, min_size=1), steps)
def test_a_selection_holds_what_its_ranges_cover(given_ranges: list[tuple[int, int | None]], step: int) -> None:
    assert (step in StepSelection(tuple(given_ranges))) == covered(given_ranges, step)


@given(st.lists(ranges))
def test_a_selection_survives_writing_and_parsing(given_ranges: list[tuple[int, int | None]]) -> None:
    selection = StepSelection(tuple(given_ranges))
    assert StepSelection.parse(str(selection)) == selection


@pytest.mark.parametrize("text", ["", "  "])
def test_nothing_selects_every_step(text: str) -> None:
    assert all(step in StepSelection.parse(text) for step in (0, 7, 10**12))


def test_the_documented_form() -> None:
    selection = StepSelection.parse("0, 5,10-12,100-")
    assert [step for step in range(200) if step in selection] == [0, 5, 10, 11, 12, *range(100, 200)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "'a' is not a step"),
        ("1,,2", "'' is not a step"),
        (",", "'' is not a step"),
        ("-3", "'-3' is not a step"),
        ("1.5", "'1.5' is not a step"),
        ("1-2-3", "'1-2-3' is not a step"),
        ("5-3", "'5-3' runs backwards; write 3-5"),
        ("9" * 5000, "is not a step"),
    ],
)
def test_refusal_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        StepSelection.parse(text)
    assert said in str(raised.value) and str(raised.value).startswith("--steps ")


@given(st.text(string.digits + ",- x"))
def test_any_text_is_a_selection_or_a_usage_error(text: str) -> None:
    try:
        StepSelection.parse(text)
    except UsageError as error:
        assert error.exit_code == 2


@pytest.mark.parametrize(("text", "every"), [("all", 1), ("last", 0), ("every=1", 1), ("every=25", 25)])
def test_policies(text: str, every: int) -> None:
    policy = KeepParams.parse(text)
    assert policy.every == every
    assert KeepParams.parse(str(policy)) == policy


@pytest.mark.parametrize(
    "text", ["", "every", "every=", "every=0", "every=-1", "every=2.5", "none", "every=" + "9" * 5000]
)
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="write all, last or every=N"):
        KeepParams.parse(text)

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import UsageError
from numdrift.harness.records.run.step_selection import KeepParams, StepSelection
from numdrift.harness.records.run.user_option import numbered

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


spaced_ranges = st.tuples(steps, st.none() | st.integers(30, 60), st.integers(1, 9))
Spaced = list[tuple[int, int | None, int]]


@given(st.lists(ranges), st.lists(spaced_ranges, min_size=1))
def test_a_spaced_range_selects_one_step_in_each_distance(closed: list[tuple[int, int | None]], spaced: Spaced) -> None:
    selection = StepSelection(tuple(closed), tuple(spaced))
    selected = {
        step for first, last, distance in spaced for step in range(first, 100 if last is None else last + 1, distance)
    }
    expected = [step for step in range(100) if step in selected or covered(closed, step)]
    assert [step for step in range(100) if step in selection] == expected
    assert StepSelection.parse(str(selection)) == selection
    assert selection.last in (None, max(expected))


@given(st.lists(ranges), st.lists(spaced_ranges), st.lists(ranges), st.lists(spaced_ranges))
def test_a_selection_that_covers_another_has_its_steps(
    ranges_a: list[tuple[int, int | None]], spaced_a: Spaced, ranges_b: list[tuple[int, int | None]], spaced_b: Spaced
) -> None:
    a, b = StepSelection(tuple(ranges_a), tuple(spaced_a)), StepSelection(tuple(ranges_b), tuple(spaced_b))
    assert a.covers(a)
    if a.covers(b):
        assert all(step in a for step in range(100) if step in b)


def test_steps_around_spikes_are_selected_by_a_word() -> None:
    selection = StepSelection.parse("0-3, spikes ,10-/5")
    assert selection.spikes and str(selection) == "0-3,10-/5,spikes"
    assert StepSelection.parse(str(selection)) == selection
    assert [step for step in range(20) if step in selection] == [0, 1, 2, 3, 10, 15]
    alone = StepSelection.parse("spikes")
    assert not alone.is_everything and 0 not in alone and alone.last is None
    assert selection.covers(alone) and not StepSelection.parse("0-").covers(alone)
    with pytest.raises(UsageError, match="selects only the steps that `numdrift run` records"):
        numbered("0,spikes")


def test_a_schedule_records_the_first_steps_and_then_each_hundredth() -> None:
    schedule = StepSelection.parse("0-99,100-/100")
    assert [step for step in range(401) if step in schedule] == [*range(100), 100, 200, 300, 400]


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
        ("9-3/2", "'9-3/2' runs backwards; write 3-9/2"),
        ("5/2", "'5/2' is not a step"),
        ("5-/0", "'5-/0' is not a step"),
        ("9" * 5000, "is not a step"),
    ],
)
def test_refusal_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        StepSelection.parse(text)
    assert said in str(raised.value) and str(raised.value).startswith("--steps ")


@given(st.text(string.digits + ",-/ x"))
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

"""Which steps of a training are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.step_score import StepScore
from numdrift.harness.investigate.experiments.chosen_steps import (
    MOST_FORCED,
    MOST_TAPES,
    forced_steps,
    most_tapes,
    taped_steps,
)
from numdrift.harness.investigate.experiments.rounds import steps_between
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.search import evenly

COUNTS = st.integers(2, 5000)


@given(COUNTS, st.lists(st.integers(0, 5000), max_size=3), st.integers(1, 10**9))
def test_chosen_steps_are_few_and_hold_what_matters(count: int, firsts: list[int], size: int) -> None:
    firsts = [step for step in firsts if step < count]
    steps = forced_steps(count, firsts, size, 1 << 30)
    # then they are steps of the training, in order, as many as the disk allows and no more than are looked at
    assert list(steps) == sorted(set(steps))
    assert 2 <= len(steps) <= MOST_FORCED
    assert set(steps) <= set(range(count))
    assert len(steps) * size <= (1 << 30) or len(steps) == 2
    assert 0 in steps
    if len(steps) > 3 + len(set(firsts)):
        assert {1, count - 1, *firsts} <= set(steps)
    # and the tapes are some of them
    taped = taped_steps(steps, firsts)
    assert set(taped) <= set(steps)
    assert 1 <= len(taped) <= MOST_TAPES
    assert steps[0] in taped


def test_a_short_training_is_looked_at_as_a_whole() -> None:
    assert forced_steps(10, [3], 1000, 1 << 30) == tuple(range(10))
    assert taped_steps(tuple(range(10)), [3]) == (0, 3, 5, 9)


def test_a_small_disk_makes_few_steps() -> None:
    assert forced_steps(1000, [15], 1 << 20, 4 << 20) == (0, 1, 15, 999)


def test_a_pair_with_fewer_common_steps_has_its_share() -> None:
    steps = forced_steps(10_000, [], 1, 1 << 30, shorter=[40])
    assert len(steps) <= MOST_FORCED and {0, 1, 39, 9999} <= set(steps)
    assert 20 <= sum(step < 40 for step in steps) <= 40
    assert sum(step > 5000 for step in steps) >= 10


def test_evenly() -> None:
    assert evenly(10, 4) == [0, 3, 6, 9]
    assert evenly(3, 1) == [0]
    assert evenly(1, 1) == [0]
    assert evenly(0, 0) == []


# Which further steps are started to find the very one that a drift begins in.

THRESHOLD = 16.0


def scored(steps: dict[int, float]) -> list[StepScore]:
    return [StepScore(step, score, "loss 0", True, ()) for step, score in sorted(steps.items())]


def test_between_the_last_harmless_step_and_the_first_significant_one() -> None:
    assert steps_between(scored({0: 1.0, 10: 2.0, 20: 99.0, 30: 99.0}), THRESHOLD, 64) == list(range(11, 20))
    assert steps_between(scored({0: 1.0, 10: 99.0}), THRESHOLD, 2) == [1, 9]
    assert steps_between(scored({0: 1.0, 1: 99.0}), THRESHOLD, 64) == []
    assert steps_between(scored({0: 99.0, 5: 99.0}), THRESHOLD, 64) == []
    assert steps_between(scored({0: 1.0, 5: 2.0}), THRESHOLD, 64) == []


@given(st.integers(2, 5000), st.data())
def test_a_few_rounds_find_the_very_step(count: int, data: st.DataObject) -> None:
    # given a training whose steps are beyond rounding from `onset` on, of which some are scored
    onset = data.draw(st.integers(1, count - 1))
    known = {0: 1.0, count - 1: 99.0}
    # when further steps are scored, 8 a round
    rounds = 0
    while more := steps_between(scored(known), THRESHOLD, 8):
        known |= {step: 99.0 if step >= onset else 1.0 for step in more}
        rounds += 1
        assert rounds <= 6
    # then the first significant one is the onset
    assert min(step for step, score in known.items() if score > 16) == onset


@pytest.mark.parametrize(
    ("count", "seconds", "most"),
    [
        (1, 9.0, MOST_TAPES),
        (100, 0.0, MOST_TAPES),
        (100, 0.1, MOST_TAPES),
        (4, 0.3, 2),
        (4, 2.0, 1),
        (1000, 1.0, MOST_TAPES),
    ],
)
def test_the_noise_of_long_steps_is_measured_in_few_of_them(count: int, seconds: float, most: int) -> None:
    # given steps that take that long, but for the first one, which compiles
    steps = [SimpleNamespace(seconds=5.0 + seconds * number) for number in range(count)]
    run = cast(RecordedRun, SimpleNamespace(journal=SimpleNamespace(steps=steps)))
    assert most_tapes(run) == most
    # then the step in which a pair first differs is one of them
    assert 2 in taped_steps(tuple(range(10)), [2], most_tapes(run))

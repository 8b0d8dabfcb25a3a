"""Which further steps are started to find the very one that a drift begins in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.step_score import StepScore
from numdrift.harness.investigate.chosen_steps import steps_between

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

"""Which states a training keeps that nobody has asked for yet."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.observers.state.training_state import MOST_CHECKPOINTS, Checkpoints


def kept_by(steps: int, size: int, budget: int) -> list[int]:
    """The steps whose states lie on the disk in the end, of a training that offers one of each step."""
    checkpoints, there = Checkpoints(budget), set[int]()
    for step in range(steps):
        if checkpoints.wants(step):
            there.add(step)
            there -= set(checkpoints.kept(step, size))
    return sorted(there)


def test_every_step_of_a_short_training_is_kept() -> None:
    assert kept_by(20, 1, 1 << 30) == list(range(20))


@given(st.integers(1, 5000))
def test_a_long_one_keeps_pairs_that_are_evenly_spread(steps: int) -> None:
    kept = kept_by(steps, 1, 1 << 30)
    begun = [step for step in kept if step % 2 == 0]
    # then each has its next, but the last of the training, and between two lies always as much
    assert all(step + 1 in kept for step in begun if step + 1 < steps)
    assert len({after - before for before, after in pairwise(begun)}) <= 1
    # and there are as many as another mode may begin in, and no fewer than half of that
    assert min(steps, MOST_CHECKPOINTS) // 2 <= len(begun) <= MOST_CHECKPOINTS + 1


@given(st.integers(2, 2000), st.integers(1, 100), st.integers(1, 3000))
def test_no_more_bytes_than_were_given_but_for_the_first_pair(steps: int, size: int, budget: int) -> None:
    kept = kept_by(steps, size, budget)
    assert {0, 1} <= set(kept)
    assert len(kept) * size <= max(budget, 4 * size)

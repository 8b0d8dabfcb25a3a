from __future__ import annotations

from typing import Any

import pytest

from numdrift.harness.observers.values.recording_share import FIRST, SPARSEST, RecordingShare

SECONDS = 1e-3


class Loop:
    """A training on a clock of its own, whose steps, details and losses take a given time, in milliseconds."""

    def __init__(self, limit: float | None, training: float, details: float, losses: float = 0.0) -> None:
        self.now = 0.0
        self.events: list[dict[str, Any]] = []
        self.share = RecordingShare(limit, lambda event, **fields: self.events.append(fields), lambda: self.now)
        self.training, self.details, self.losses = training, details, losses
        self.detailed: list[int] = []
        self.step = 0

    def train(self, steps: int, *, wanted: int = 1) -> Loop:
        for step in range(self.step, self.step + steps):
            self.now += self.training * SECONDS
            has_details = step % wanted == 0 and self.share.has_details(step)
            with self.share.measured(), self.share.measured():  # an observer may call another one
                self.now += (self.losses + has_details * self.details) * SECONDS
            if has_details:
                self.detailed.append(step)
            self.share.step_recorded(step, is_selected=step % wanted == 0)
        self.step += steps
        return self


def test_without_a_limit_every_step_is_recorded() -> None:
    loop = Loop(None, 1, 100).train(50)
    assert loop.detailed == list(range(50)) and loop.events == []


@pytest.mark.parametrize(("details", "every"), [(0.2, 1), (0.31, 2), (1.0, 4), (3.0, 16), (1e6, SPARSEST)])
def test_the_details_are_thinned_until_they_fit(details: float, every: int) -> None:
    # given a limit of 3 % of steps of 10 ms, that is 0.3 ms
    loop = Loop(0.03, 10, details).train(3000)
    assert loop.share.every == every
    assert loop.detailed[-1] % every == 0
    # the first steps are recorded whatever they cost, so that something can be compared
    assert loop.detailed[:FIRST] == list(range(FIRST))
    late = len([step for step in loop.detailed if step >= 1000])
    assert late * details / (2000 * 10) <= 0.03 or every == SPARSEST
    assert loop.share.total()["left_out"] == 3000 - len(loop.detailed)


def test_the_share_of_a_run_is_that_of_its_times() -> None:
    loop = Loop(0.5, 10, 1.0, losses=1.0)
    loop.training = 1000  # the first steps compile, and count as no time of the training
    loop.train(FIRST)
    loop.training = 10
    loop.train(100)
    assert loop.share.total() == {"share": 0.2, "left_out": 0, "every": 1}


def test_losses_that_take_more_than_the_limit_leave_some_details() -> None:
    loop = Loop(0.01, 10, 1.0, losses=0.5).train(2000)
    assert loop.share.every == 128  # of which the details take an eighth of 1 %


def test_slower_steps_make_the_details_more_frequent_again() -> None:
    loop = Loop(0.03, 10, 3.0).train(500)
    assert loop.share.every == 16
    loop.training = 1000
    loop.train(1000)
    assert loop.share.every == 1
    assert [event["every"] for event in loop.events] == [16, 8, 4, 2, 1]


def test_times_that_vary_a_little_do_not_change_the_distance() -> None:
    loop = Loop(0.03, 10, 1.0).train(100)
    for step in range(1000):
        loop.details = 1.0 + 0.2 * (step % 3)
        loop.train(1)
    assert len(loop.events) <= 2


def test_a_schedule_counts_by_how_often_it_wants_details() -> None:
    loop = Loop(0.03, 10, 3.0).train(5000, wanted=100)
    assert loop.share.every <= 2  # 3 ms in each 100th step are 0.3 %


def test_steps_that_are_insisted_on_are_recorded() -> None:
    loop = Loop(0.03, 10, 1e6).train(500)
    loop.share.insist(504)
    before = len(loop.detailed)
    loop.train(20)
    assert loop.detailed[before:] == [500, 501, 502, 503, 504]

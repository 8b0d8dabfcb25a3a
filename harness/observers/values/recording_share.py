"""The share of a training's time that recording takes, and the steps that are left out to keep it small."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

FIRST = 3
"""The steps at the beginning whose details are always recorded. Their times say nothing: code is compiled in them."""

SPARSEST = 1024
"""The largest distance between two steps whose details are recorded."""

KEPT_TIMES = 16
"""The number of steps whose times are kept, by kind of step."""

LEAST_TIMES = 3
"""The number of such times without which nothing is decided."""

KEPT_CHOICES = 256
"""The number of steps of which it is known whether their details were wanted."""

LEAST_ROOM = 0.125
"""The share of the limit that the details may take where the losses alone take more than the rest of it.

To record ever fewer details would hardly make such a recording quicker."""

CALM = 0.7
"""The share of their room that the details must stay below, at half the distance, before that becomes the distance.

Without it, times that vary would change the distance at each step."""


class RecordingShare:
    """Decides which steps are recorded in detail, so that recording takes at most a share of the training's time.

    The details are those of one step in 1, 2, 4, ..., 1024, beginning with step 0, and of the first three steps. So two
    runs with different distances have the steps of the larger distance in common. With D the median time that recording
    takes in a step with details, P that in a step without them, T that of the training in a step, f the share of the
    steps whose details are wanted and n the distance,

        share = (P + (D - P) * f / n) / T

    n is the smallest distance whose share is within the limit. Where P alone exceeds it, the details get an eighth of
    the limit.

    On an accelerator the recording waits for the device, and this waiting counts as its time. `limit` is None if every
    step is recorded. `write` writes a `thinned` event for each change of the distance.
    """

    def __init__(
        self, limit: float | None, write: Callable[..., None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.every = 1
        self.left_out = 0
        self._limit = limit
        self._write = write
        self._clock = clock
        self._chosen: dict[int, bool] = {}
        self._until = FIRST - 1
        self._spent = self._total = 0.0
        self._depth = 0
        self._ended = self._began = clock()
        self._detailed: deque[float] = deque(maxlen=KEPT_TIMES)
        self._plain: deque[float] = deque(maxlen=KEPT_TIMES)
        self._training: deque[float] = deque(maxlen=KEPT_TIMES)
        self._wanted: deque[bool] = deque(maxlen=KEPT_CHOICES)

    def has_details(self, step: int) -> bool:
        """Return whether the details of a step are recorded: the same answer until the step is recorded."""
        if self._limit is None:
            return True
        return step <= self._until or self._chosen.setdefault(step, step % self.every == 0)

    def insist(self, until: int) -> None:
        """Record the details of this step and of those that follow up to step `until`, whatever that takes."""
        self._until = max(self._until, until)

    def measured(self) -> AbstractContextManager[None]:
        """Return a context whose time counts as time of the recording."""
        return nullcontext() if self._limit is None or self._depth else self._measured()

    @contextmanager
    def _measured(self) -> Iterator[None]:
        self._depth, began = 1, self._clock()
        try:
            yield
        finally:
            self._depth = 0
            self._spent += self._clock() - began

    def step_recorded(self, step: int, *, is_selected: bool) -> None:
        """Take the time of a step that was recorded. `is_selected` says that its details were wanted."""
        if self._limit is None:
            return
        had_details = self._chosen.pop(step, True) or step <= self._until
        self.left_out += is_selected and not had_details
        self._wanted.append(is_selected)
        now = self._clock()
        spent, passed = self._spent, now - self._ended
        self._spent, self._ended = 0.0, now
        if step < FIRST:
            self._began = now
            return
        self._total += spent
        (self._detailed if had_details and is_selected else self._plain).append(spent)
        self._training.append(max(passed - spent, 1e-9))
        if had_details and is_selected and len(self._detailed) >= LEAST_TIMES:
            self._adapt(step, self._limit)

    def total(self) -> dict[str, Any]:
        """Return the share of the time since the first steps, and the number of steps whose details were left out."""
        others = max(self._ended - self._began - self._total, 1e-9)
        return {"share": round(self._total / others, 6), "left_out": self.left_out, "every": self.every}

    def _adapt(self, step: int, limit: float) -> None:
        training = statistics.median(self._training)
        detailed = statistics.median(self._detailed)
        plain = min(detailed, statistics.median(self._plain)) if self._plain else 0.0
        wanted = sum(self._wanted) / len(self._wanted)

        def of_details(every: int) -> float:
            return (detailed - plain) * wanted / every / training

        room = max(limit - plain / training, LEAST_ROOM * limit)
        every = self.every
        while every < SPARSEST and of_details(every) > room:
            every *= 2
        if every == self.every and every > 1 and of_details(every // 2) <= CALM * room:
            every //= 2
        if every != self.every:
            self.every = every
            share = plain / training + of_details(every)
            self._write("thinned", step=step + 1, every=every, share=round(share, 6))

"""The rule that finds spikes of the loss, from the losses of the steps before."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

WINDOW = 64
"""The number of losses before a step that the step's loss is compared with."""

LEAST = 16
"""The number of losses without which no loss is a spike: the first losses of a training fall steeply."""

DEVIATIONS = 6.0
"""The distance from the median, in standard deviations of a normal distribution, beyond which a loss is a spike.

A normal distribution exceeds it once in a billion steps."""

CONSISTENT = 1.4826
"""The standard deviation of a normal distribution, as a multiple of its median absolute deviation."""

FLOOR = 0.01
"""The smallest deviation, as a share of the median. Without it, any change of a loss that stands still is a spike."""


@dataclass(frozen=True, slots=True)
class UsualLoss:
    """The losses before a step: their median, and the loss above which the step's loss is a spike."""

    median: float
    limit: float


class SpikeRule:
    """Finds the losses that are far above those before them.

    A loss is a spike if it exceeds

        median + 6 * max(1.4826 * median(|loss - median|), 0.01 * |median|)

    of the last 64 finite losses. This is the Hampel identifier (Davies and Gather, The identification
    of multiple outliers, JASA 88, 1993) in one direction, with a floor. Median and deviation hardly move while less
    than half of the losses are outliers, so a spike does not hide the next one. Losses of a spike belong to the window:
    a loss that stays high is no spike for longer than half a window.
    """

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)

    def exceeded(self, loss: float) -> UsualLoss | None:
        """Return what was usual before the next step if the step's loss, a finite number, is a spike; None otherwise.

        Add the loss to the losses.
        """
        usual = self._usual()
        self._losses.append(loss)
        return usual if usual is not None and loss > usual.limit else None

    def _usual(self) -> UsualLoss | None:
        if len(self._losses) < LEAST:
            return None
        median = statistics.median(self._losses)
        deviation = CONSISTENT * statistics.median([abs(loss - median) for loss in self._losses])
        return UsualLoss(median, median + DEVIATIONS * max(deviation, FLOOR * abs(median)))

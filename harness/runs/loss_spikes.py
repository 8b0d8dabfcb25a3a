"""The spikes of the loss that a run has recorded, and the details that it has left out, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .journal import Journal


@dataclass(frozen=True, slots=True)
class LossSpike:
    """A step around which a run recorded more, because of its loss.

    reason: `spike` (the loss is far above the losses before), `nonfinite` (the loss or a parameter is no longer finite)
        or `failure` (the script failed after this step)
    first, last: the first and the last step that were recorded because of it, as far as they were executed
    loss: the loss of the step, None if it has none; NaN and infinite losses are the texts nan, inf and -inf
    median: the median of the losses before, None if it was not needed
    what, tensor, since: the first tensor with an element that is not finite: `gradient` or `value`, its name and the
        step; "" and None if none was seen
    """

    step: int
    reason: str
    first: int
    last: int
    loss: float | str | None = None
    median: float | None = None
    what: str = ""
    tensor: str = ""
    since: int | None = None

    @property
    def text(self) -> str:
        """One clause that says what happened at which step."""
        if self.reason == "failure":
            return f"the script failed after step {self.step}"
        if self.reason == "spike":
            return f"the loss spiked at step {self.step}: {_number(self.loss)}, where {_number(self.median)} was usual"
        is_finite = self.loss is None or not isinstance(self.loss, str)
        text = f"a parameter is not finite after step {self.step}" if is_finite else ""
        text = text or f"the loss is {self.loss} at step {self.step}"
        if not self.tensor:
            return text
        return f"{text}; first seen in the {self.what} of {self.tensor} at step {self.since}"


def spikes_of(journal: Journal) -> list[LossSpike]:
    """Return the spikes that a run has recorded, in order."""
    last_step = journal.steps[-1].step if journal.steps else 0
    return [_spike(event, last_step) for event in journal.events("spike")]


def _spike(event: Mapping[str, Any], last_step: int) -> LossSpike:
    return LossSpike(
        event["step"],
        event["reason"],
        event["first"],
        min(event["last"], max(last_step, event["step"])),
        event.get("loss"),
        event.get("median"),
        event.get("what", ""),
        event.get("tensor", ""),
        event.get("since"),
    )


def _number(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def left_out(journal: Journal) -> int:
    """Return the number of steps whose details were left out to keep within the share of the time for recording."""
    return sum(int(event.get("left_out", 0)) for event in journal.events("overhead"))

"""The digests of the last steps, which are held in memory and written if the loss spikes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.values.digest_record import RECORD_BYTES
from ...tape.files.journal_writing import FrameFile
from .ended_step import Table
from .loss_spikes import SpikeRule

HELD = 8
"""The number of steps before a spike, and after it, that are recorded."""

MOST_EVENTS = 1000
"""The number of spikes that are recorded. A loss that spikes more often has no usual value."""

NAN, INF = 2, 3
"""The places of the counts of NaN and infinite elements among the 64-bit words of a digest."""


@dataclass(frozen=True, slots=True)
class DigestedStep:
    """The digests of one step: a record for each tensor of `table`, then one for each parameter's gradient."""

    table: Table
    step: int
    payload: Sequence[bytes]

    def nonfinite(self) -> tuple[str, str] | None:
        """Return the kind and the name of a tensor with an element that is not finite, None if all are finite.

        Gradients come before the values that they change. Of several gradients it is the last one in the model's order:
        the backward computes it first, and may pass its NaN on to the others. Buffers are left out, because a mask may
        be infinite.
        """
        words = memoryview(b"".join(self.payload)).cast("Q")
        size = RECORD_BYTES // 8
        if not (any(words[NAN::size]) or any(words[INF::size])):
            return None
        tensors = self.table.tensors
        bad = [bool(words[place + NAN] or words[place + INF]) for place in range(0, len(words), size)]
        parameters = [named.name for named in self.table.parameters]
        of_gradients = [name for name, is_bad in zip(parameters, bad[len(tensors) :], strict=True) if is_bad]
        if of_gradients:
            return "gradient", of_gradients[-1]
        of_values = [named.name for named, is_bad in zip(tensors, bad, strict=False) if is_bad]
        return next((("value", name) for name in of_values if name in parameters), None)


class HeldSteps:
    """Holds the digests of the last steps, and writes them with those of the next steps when the loss spikes.

    A spike is recorded as a `spike` event. Its `reason` is `spike` (of the loss), `nonfinite` (the loss or a parameter
    is not finite any more) or `failure` (of the script). Spikes that follow within 8 steps belong to the first one.
    """

    def __init__(self, file: FrameFile, write: Callable[..., None]) -> None:
        self._file = file
        self._write = write
        self._held: deque[DigestedStep] = deque(maxlen=HELD + 1)
        self._rules: dict[int, SpikeRule] = {}
        self._until = self._last = -1
        self._suspect: dict[str, Any] = {}
        self._found: tuple[str, dict[str, Any]] | None = None
        self._finite = True
        self._events = 0

    def judge(self, step: int, losses: Sequence[float | str], turn: int = 0) -> bool:
        """Look at the losses of a step. Return whether the details of the step are wanted because of a spike.

        turn: the number of the optimizer that ended the step; optimizers that take turns train different losses
        """
        self._last = step
        self._found = None
        if losses and not math.isfinite(loss := float(losses[0])):
            self._found = ("nonfinite", {"loss": losses[0]})
            return self._finite or step <= self._until
        if losses and (usual := self._rules.setdefault(turn, SpikeRule()).exceeded(loss)) is not None:
            self._found = ("spike", {"loss": loss, "median": usual.median, "limit": usual.limit})
        return self._found is not None or step <= self._until

    def hold(self, held: DigestedStep, *, is_written: bool) -> None:
        """Take the digests of the step that `judge` has seen. `is_written` says that the file has them already."""
        if not is_written:
            self._held.append(held)
        found = held.nonfinite()
        if found is None:
            self._suspect = {}
        elif not self._suspect:
            self._suspect = {"what": found[0], "tensor": found[1], "since": held.step}

    def settle(self, step: int) -> bool:
        """Record the spike that was found in the step, if any. Return whether the step belongs to a spike."""
        found = self._found
        if found is None and self._suspect.get("what") == "value":
            found = ("nonfinite", {})
        is_finite = found is None or found[0] == "spike"
        # A training that has lost its numbers once stays that way.
        if found is not None and (is_finite or self._finite):
            self._note(step, found[0], **found[1], **({} if is_finite else self._suspect))
        self._finite = is_finite
        if step > self._until:
            return False
        self._flush(step)
        return True

    def script_ended(self, failure: str) -> None:
        """Write the last steps of a script that failed: they may show why."""
        if failure and self._held and self._last >= 0:
            self._note(self._last, "failure", text=failure)
            self._flush(self._last)

    def forget(self) -> None:
        self._held.clear()

    def _note(self, step: int, reason: str, **facts: Any) -> None:
        if step > self._until and self._events < MOST_EVENTS:
            self._events += 1
            self._until = step + HELD
            self._write("spike", step=step, reason=reason, first=max(0, step - HELD), last=self._until, **facts)

    def _flush(self, step: int) -> None:
        while self._held:
            held = self._held[0]
            if held.step >= step - HELD:  # an earlier one is only held because a later step was written by itself
                self._file.frame(held.table.number, held.step, held.payload, sum(len(part) for part in held.payload))
            self._held.popleft()  # not earlier: a full disk may have room for it later

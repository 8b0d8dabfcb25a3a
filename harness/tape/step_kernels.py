"""The kernels that a mode executes a step with, in the mode's own process: what they gave, and what they would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from .replay import AsRecorded, Execution, Replay, executed, set_apart
from .tape import SCRATCH, Tape
from .value_digests import digest_of

PATTERNS = (0x55, 0x2A)
"""Bytes that are left behind in memory for ops that do not write all of what they return."""

COPIES = 4
"""Of each size that an op returns: it may allocate something else first."""


class StepKernels(Protocol):
    """The kernels of one recorded step. `notes` say what of it could not be observed, and why."""

    @property
    def notes(self) -> Sequence[str]: ...

    def digests(self) -> list[list[str | None]]:
        """For each call of the tape the digests of what its real execution gave: fresh outputs, then written arguments.

        A call that computes nothing has none; None stands for a value that is not known.
        """

    def prepare(self, positions: Sequence[int]) -> None:
        """Make ready for executing these calls, which is never needed and may save time."""

    def execute(self, one: Execution, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call on these arguments, those that it writes included; gives its flat outputs.

        Grad mode, autocast and generators are as before afterwards.
        """

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What the digests of a call were made of, None where it was not kept."""


class ReplayedKernels:
    """Those of a mode that executes op by op: the step replays bit for bit in its process."""

    notes: Sequence[str] = ()

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._digests: list[list[str | None]] | None = None

    def digests(self) -> list[list[str | None]]:
        """What two replays on differently filled memory agree on: scratch that is returned unwritten is unknown.

        Raises NotReplayable.
        """
        if self._digests is None:
            first, second = (self._found(pattern) for pattern in PATTERNS)
            self._digests = [
                [one if one == other else None for one, other in zip(mine, others, strict=True)]
                for mine, others in zip(first, second, strict=True)
            ]
        return self._digests

    def _found(self, pattern: int) -> list[list[str]]:
        digesting = _Digesting(self._tape, pattern)
        Replay(self._tape).run(digesting)
        return digesting.found

    def prepare(self, positions: Sequence[int]) -> None:
        """Nothing is to be made ready."""

    def execute(self, one: Execution, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        return executed_apart(one, arguments, keywords)

    def value(self, position: int) -> list[torch.Tensor] | None:
        return None


def executed_apart(one: Execution, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
    """Execute one call as a replay does: below autograd, in its grad mode, the generators put back afterwards."""
    draw = one.call.draw
    devices = () if draw is None else (moved.device for moved in draw.states)
    with set_apart(devices), torch.set_grad_enabled(one.call.grad):
        return executed(one, arguments, keywords)


class _Digesting(AsRecorded):
    """The unchanged replay, its results digested by the number of their call, on memory filled with `pattern`."""

    def __init__(self, tape: Tape, pattern: int) -> None:
        self.found: list[list[str]] = [[] for _ in tape.calls]
        self._slots = tape.slots
        self._pattern = pattern

    def execute(self, one: Execution, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        self._leave_pattern(one)
        outputs = super().execute(one, arguments, keywords)
        given = results(one, outputs, arguments, keywords)
        unwritten = one.call.name in SCRATCH
        self.found[one.position] = [
            f"unwritten {self._pattern}" if unwritten else digest_of(value) for value in given
        ]
        return outputs

    def _leave_pattern(self, one: Execution) -> None:
        """Fill memory of the sizes that the op returns, and free it: that is what it will be given."""
        fresh = (view for view, new in zip(one.call.outputs, one.call.fresh, strict=True) if new)
        filled = [
            torch.full((slot.size,), self._pattern, dtype=torch.uint8, device=slot.device)
            for slot in (self._slots[view.slot] for view in fresh)
            for _ in range(COPIES)
        ]
        del filled


def results(
    one: Execution, outputs: list[Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[torch.Tensor]:
    """What an executed call has computed: its fresh outputs, then the arguments that it has written."""
    fresh = [output for output, new in zip(outputs, one.call.fresh, strict=False) if new]
    return [*fresh, *one.written(arguments, keywords)]

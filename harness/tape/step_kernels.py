"""Executes single calls of a recorded step by the kernels of its mode, in the mode's own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from ..records.mode_spec import ModeSpec
from .call_log import digest_of
from .laid_out import ALIGNMENT, LaidOut
from .replay import AsRecorded, Computation, Replay, executed, given, set_apart
from .storages import viewed
from .tape import SCRATCH, Call, NotReplayable, Slot, Tape, View, views_in

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

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call on these arguments, those that it writes included; gives its flat outputs.

        Grad mode, autocast and generators are as before afterwards.
        """

    def called(self, position: int) -> list[LaidOut] | None:
        """How what a call takes lay when the mode's code called the op itself: code that a compiler generates may copy
        it into another layout before. None where that is not known, or the code calls no such op."""

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What the digests of a call were made of, None where it was not kept."""

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        """What the step on this tape gives with its compiled code compiled as `spec` states; `own` is the mode as it
        was recorded, whose bits have to come again first. Raises NotReplayable, and what a compiler or an op raises."""


class ReplayedKernels:
    """Those of a mode that executes op by op: the step replays bit for bit in its process."""

    notes: Sequence[str] = ()

    def __init__(self, read: Callable[[], Tape]) -> None:
        """`read` gives the step's tape, which is not kept."""
        self._read = read
        self._digests: list[list[str | None]] | None = None

    def digests(self) -> list[list[str | None]]:
        """What two replays on differently filled memory agree on: scratch that is returned unwritten is unknown.

        Raises NotReplayable.
        """
        if self._digests is None:
            found, tape = [], self._read()
            for pattern in PATTERNS:
                digesting = _Digesting(tape, pattern)
                Replay(tape).run(digesting)
                found.append(digesting.found)
            self._digests = [
                [one if one == other else None for one, other in zip(mine, others, strict=True)]
                for mine, others in zip(*found, strict=True)
            ]
        return self._digests

    def prepare(self, positions: Sequence[int]) -> None:
        """Nothing is to be made ready."""

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        return executed_apart(one, arguments, keywords)

    def called(self, position: int) -> list[LaidOut] | None:
        return None

    def value(self, position: int) -> list[torch.Tensor] | None:
        return None

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        raise NotReplayable("nothing of the step is compiled")


def executed_apart(one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
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

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        # Fill memory of the sizes that the op returns, and free it: that is what it will be given
        fresh = [view for view, new in zip(one.call.outputs, one.call.fresh, strict=True) if new]
        filled = [
            torch.full((slot.size,), self._pattern, dtype=torch.uint8, device=slot.device)
            for slot in (self._slots[view.slot] for view in fresh)
            for _ in range(COPIES)
        ]
        del filled
        outputs = super().execute(one, arguments, keywords)
        given = results(one, outputs, arguments, keywords)
        unwritten = one.call.name in SCRATCH
        self.found[one.position] = [f"unwritten {self._pattern}" if unwritten else digest_of(value) for value in given]
        return outputs


def results(
    one: Computation, outputs: list[Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[torch.Tensor]:
    """What an executed call has computed: its fresh outputs, then the arguments that it has written."""
    fresh = [output for output, new in zip(outputs, one.call.fresh, strict=False) if new]
    return [*fresh, *one.written(arguments, keywords)]


# The memory that one call works on, cut out of its storages: what its views span, and nothing around it.

Bytes = Mapping[int, tuple[int, torch.Tensor]]
"""By slot: where a span begins in its storage, and its content as bytes."""


class CallMemory:
    """Storages for one call, made from spans of the recorded ones; what the call writes may be written into these. A
    span lies at the same place modulo ALIGNMENT as in its storage, for kernels may add up in another order elsewhere.

    Raises ValueError unless every view that the call takes lies within the span of its slot: what reads beyond its
    memory ends the process.
    """

    def __init__(self, call: Call, slots: Sequence[Slot], content: Bytes) -> None:
        self._call = call
        self._starts = {slot: start for slot, (start, _) in content.items()}
        self._storages: dict[int, torch.UntypedStorage] = {}
        spans = spans_of(call)
        if spans.keys() != content.keys():
            raise ValueError(f"{call.op} takes the slots {sorted(spans)}, sent are {sorted(content)}")
        for slot, (first, last) in spans.items():
            start, data = content[slot]
            if first < last and not start <= first <= last <= start + data.numel():
                raise ValueError(
                    f"{call.op} takes the bytes {first} to {last} of slot {slot}, "
                    f"sent are {start} to {start + data.numel()}"
                )
            # The span's bytes, with those before them that the alignment asks for: a span from byte 100 on lies at
            # byte 36 of its storage (100 modulo 64). What lies right already is taken as it came.
            lead, device = start % ALIGNMENT, slots[slot].device
            if lead or data.untyped_storage().nbytes() != data.numel() or str(data.device) != device:
                whole = torch.empty(lead + data.numel(), dtype=torch.uint8, device=device)
                whole[lead:].copy_(data)
                data = whole
            self._storages[slot] = data.untyped_storage()

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the call takes, on this memory."""
        return given(self._call, self._tensor)

    def content(self, slot: int) -> torch.Tensor:
        """The span of a slot as it is now; it ends where the storage ends, should an op have made it larger."""
        storage = self._storages[slot]
        lead = self._starts[slot] % ALIGNMENT
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return empty.set_(storage, lead, (storage.nbytes() - lead,), (1,))

    def _tensor(self, view: View) -> torch.Tensor:
        start = self._starts[view.slot]
        offset = view.offset - (start - start % ALIGNMENT) // view.dtype.itemsize
        return viewed(self._storages[view.slot], replace(view, offset=max(0, offset)))  # below 0: no elements


def spans_of(call: Call) -> dict[int, tuple[int, int]]:
    """The bytes of each storage that the call's arguments lie between; (0, 0) where these have no elements."""
    spans: dict[int, tuple[int, int]] = {}
    for view in views_in(call):
        first, last = spans.get(view.slot, (0, 0))
        if 0 not in view.size:
            start, end = view.offset * view.dtype.itemsize, view.extent * view.dtype.itemsize
            first, last = (min(first, start), max(last, end)) if first < last else (start, end)
        spans[view.slot] = first, last
    return spans

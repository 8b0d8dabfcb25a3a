"""Execute individual calls of a recorded step with the kernels of its mode, in the mode's own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from ...records.modes.mode_spec import ModeSpec
from ..recording.call_log import digest_of
from ..replaying.laid_out import ALIGNMENT, LaidOut
from ..replaying.replay import AsRecorded, Computation, Replay, call_arguments, executed, results, set_apart
from ..storages import viewed
from ..tape import SCRATCH, Call, NotReplayable, Slot, Tape, View, views_in

PATTERNS = (0x55, 0x2A)
"""The bytes with which two replays fill memory before each op. An op may leave memory that it returns unwritten."""

COPIES = 4
"""The number of blocks that are filled for each returned tensor, since the op may first allocate further memory."""


class StepKernels(Protocol):
    """The kernels of one recorded step. `notes` list the results that could not be observed, and why."""

    @property
    def notes(self) -> Sequence[str]: ...

    def digests(self) -> list[list[str | None]]:
        """Return the digests of each call's results in the recorded step: fresh outputs, then written arguments.

        A call that computes nothing has no digests; the digest of an unknown value is None.
        """

    def prepare(self, positions: Sequence[int]) -> None:
        """Prepare the execution of these calls. This is never necessary, but may save time."""

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call on these arguments, including those that it writes to, and return its flat outputs.

        Grad mode, autocast and generators are restored afterwards.
        """

    def called(self, position: int) -> list[LaidOut] | None:
        """Return the layouts of a call's tensors if the mode's code called the op itself.

        Code that a compiler generates may first copy a tensor to a different layout. Returns None if the layouts are
        unknown, or if the code does not call the op.
        """

    def value(self, position: int) -> list[torch.Tensor] | None:
        """Return the values of a call's results, in the order of `digests`, None if they were not kept."""

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        """Return the watched values of the step, executed with its graphs compiled as `spec` states.

        `own` is the recorded mode, in which the step must first repeat its recorded bits. Raises NotReplayable, and the
        errors of compilers and ops.
        """


class ReplayedKernels:
    """The kernels of a mode that executes op by op: its steps replay bit for bit in the mode's process."""

    notes: Sequence[str] = ()

    def __init__(self, read: Callable[[], Tape]) -> None:
        """Keep `read`, which returns the step's tape; the tape itself is not kept."""
        self._read = read
        self._digests: list[list[str | None]] | None = None
        self._settled: dict[int, list[torch.Tensor]] | None = None

    def digests(self) -> list[list[str | None]]:
        """Return the digests on which two replays with differently filled memory agree, and None for all others.

        The replays disagree if an op returns memory that it has not written. Raises NotReplayable.
        """
        if self._digests is None:
            replays, tape = [], self._read()
            for pattern in PATTERNS:
                digesting = _Digesting(tape, pattern)
                Replay(tape).show(digesting, lambda name, value: None)
                replays.append(digesting.found)
            self._digests = [
                [
                    first if first == second else None
                    for first, second in zip(first_digests, second_digests, strict=True)
                ]
                for first_digests, second_digests in zip(*replays, strict=True)
            ]
        return self._digests

    def prepare(self, positions: Sequence[int]) -> None:
        """Do nothing: these kernels need no preparation."""

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        return executed_apart(computation, arguments, keywords)

    def called(self, position: int) -> list[LaidOut] | None:
        return None

    def value(self, position: int) -> list[torch.Tensor] | None:
        """Return the settled results of a call that does not repeat."""
        if self._settled is None:
            calls = enumerate(self._read().calls)
            self._settled = {number: list(call.settled) for number, call in calls if call.settled is not None}
        return self._settled.get(position)

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        raise NotReplayable("no part of the step is compiled")


def executed_apart(computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
    """Execute one call as a replay does, below autograd, in the call's grad mode. Restore the generators afterwards."""
    draw = computation.call.draw
    devices = () if draw is None else (moved.device for moved in draw.states)
    with set_apart(devices), torch.set_grad_enabled(computation.call.grad):
        return executed(computation, arguments, keywords)


class _Digesting(AsRecorded):
    """An unchanged replay on memory filled with `pattern`; `found` collects the digests of each call's results."""

    def __init__(self, tape: Tape, pattern: int) -> None:
        self.found: list[list[str]] = [[] for _ in tape.calls]
        self._slots = tape.slots
        self._pattern = pattern

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        # Fill memory of the sizes that the op returns, and free it: the allocator will pass it to the op.
        fresh = [view for view, new in zip(computation.call.outputs, computation.call.fresh, strict=True) if new]
        filled = [
            torch.full((slot.size,), self._pattern, dtype=torch.uint8, device=slot.device)
            for slot in (self._slots[view.slot] for view in fresh)
            for _ in range(COPIES)
        ]
        del filled
        outputs = super().execute(computation, arguments, keywords)
        values = results(computation, outputs, arguments, keywords)
        unwritten = computation.call.name in SCRATCH
        self.found[computation.position] = [
            f"unwritten {self._pattern}" if unwritten else digest_of(value) for value in values
        ]
        return outputs


# The memory of one call: of each storage, only the span that the call's views cover.

Bytes = Mapping[int, tuple[int, torch.Tensor]]
"""The span of each slot: where it starts in the slot's storage, and its content as bytes."""


class CallMemory:
    """Storages for one call, made from spans of the recorded storages. The call may write to these spans.

    A span begins at the same byte modulo ALIGNMENT as in the recorded storage, since kernels may sum in a different
    order at a different alignment.

    Raises ValueError unless every view that the call takes is within the span of its slot: a kernel that reads beyond
    its memory ends the process.
    """

    def __init__(self, call: Call, slots: Sequence[Slot], content: Bytes) -> None:
        self._call = call
        self._starts = {slot: start for slot, (start, _) in content.items()}
        self._storages: dict[int, torch.UntypedStorage] = {}
        spans = spans_of(call)
        if spans.keys() != content.keys():
            raise ValueError(f"{call.op} takes the slots {sorted(spans)}, but the request sends {sorted(content)}")
        for slot, (first, last) in spans.items():
            start, data = content[slot]
            if first < last and not start <= first <= last <= start + data.numel():
                raise ValueError(
                    f"{call.op} takes the bytes {first} to {last} of slot {slot}, "
                    f"but the request sends {start} to {start + data.numel()}"
                )
            # Put as many bytes before the span as its alignment needs: a span that begins at byte 100 of its storage
            # begins at byte 36 of the copy (100 modulo 64). A span with the right alignment is used directly.
            lead, device = start % ALIGNMENT, slots[slot].device
            if lead or data.untyped_storage().nbytes() != data.numel() or str(data.device) != device:
                whole = torch.empty(lead + data.numel(), dtype=torch.uint8, device=device)
                whole[lead:].copy_(data)
                data = whole
            self._storages[slot] = data.untyped_storage()

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call, on this memory."""
        return call_arguments(self._call, self._tensor)

    def content(self, slot: int) -> torch.Tensor:
        """Return the present span of a slot, up to the end of its storage, which an op may have enlarged."""
        storage = self._storages[slot]
        lead = self._starts[slot] % ALIGNMENT
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return empty.set_(storage, lead, (storage.nbytes() - lead,), (1,))

    def _tensor(self, view: View) -> torch.Tensor:
        start = self._starts[view.slot]
        offset = view.offset - (start - start % ALIGNMENT) // view.dtype.itemsize
        return viewed(self._storages[view.slot], replace(view, offset=max(0, offset)))  # negative only if view is empty


def spans_of(call: Call) -> dict[int, tuple[int, int]]:
    """Return the start and end of the bytes that the arguments use in each storage, (0, 0) if they are empty."""
    spans: dict[int, tuple[int, int]] = {}
    for view in views_in(call):
        first, last = spans.get(view.slot, (0, 0))
        if 0 not in view.size:
            start, end = view.offset * view.dtype.itemsize, view.extent * view.dtype.itemsize
            first, last = (min(first, start), max(last, end)) if first < last else (start, end)
        spans[view.slot] = first, last
    return spans

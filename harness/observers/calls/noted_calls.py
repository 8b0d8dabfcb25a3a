"""Records one call with its surroundings: the memory and values of its tensors, and the generators that it advances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...records.values.call_record import OWN, SETUP_PHASE, TORCH, CallRecord
from ...records.values.digest_record import RECORD_BYTES
from ...tape.files.journal_writing import AppendFile
from ...tape.recording.call_log import PLAIN
from ...tape.recording.followed_calls import OpCall
from ...tape.tape import leaves
from ...torch_private.dispatching import (
    StorageMark,
    storage_address,
    without_dispatch_modes,
    without_function_modes,
)
from ...torch_private.operators import returns_view
from ..state.script_generators import GeneratorDigests
from ..values.digest import Digester, hash_text
from .operation_recorder import FLUSH_AT

MOST_TEXT = 200
"""Maximum number of characters that are kept of a call's arguments other than tensors."""


class Memories:
    """Numbers the memory of tensors in the order of first use."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[StorageMark, int]] = {}
        self._count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's memory, or -1 if it has none."""
        try:
            address = storage_address(tensor)
        except (RuntimeError, NotImplementedError, AttributeError):
            return -1
        entry = self._marks.get(address)
        if entry is None:
            entry = self._marks[address] = StorageMark(tensor), self._count
            self._count += 1
        return entry[1]

    def forget_freed(self) -> None:
        """Forget storages that were freed. Until then, their marks keep their addresses reserved."""
        self._marks = {key: entry for key, entry in self._marks.items() if entry[0].storage() is not None}


class NotedCalls:
    """Writes the calls of a training run to a file.

    `step` and `phase` are the current step and phase. Two threads must not use an instance at the same time.
    """

    def __init__(self, path: Path, device: str, digester: Digester) -> None:
        self.step, self.phase = 0, SETUP_PHASE
        self.memories = Memories()
        self._file = AppendFile(path)
        self._digester = digester
        self._device = device.partition(":")[0]
        self._generators = GeneratorDigests(device, digester)
        self._states: Mapping[str, str] = {}
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def begin(self) -> None:
        """Read the generators' current states."""
        self._states = self._generators.read()

    def moved(self, line: str) -> None:
        """Record the generators that `line` has changed without an op since their states were last read."""
        before, now = self._states, self._generators.read()
        self._states = now
        # NumPy has a state only once it is loaded. Loading it draws nothing.
        moved = [(name, before[name], state) for name, state in now.items() if before.get(name, state) != state]
        if moved:
            self.write(CallRecord(self.step, "", line, self.phase, drew=moved))

    def before(self, call: OpCall, *, line: str, module: str | None, thread: int) -> Callable[[Any], None]:
        """Examine a call that is about to run. The returned function records it together with its outputs."""
        phase, tensors, targets = self.phase, call.tensors, call.written
        states = self._drawn_from(call.values) if call.is_random else {}
        inputs = self.shown(tensors)
        written = [place for place, tensor in enumerate(tensors) if any(tensor is target for target in targets)]
        numbers = numbers_in(call.values)

        def after(outputs: Any) -> None:
            produced = [value for value in leaves(outputs) if isinstance(value, torch.Tensor)]
            fresh = [tensor for tensor in produced if not any(tensor is target for target in targets)]
            input_memories = {memory for memory, _ in inputs}
            numbered = [self.memories.number(tensor) for tensor in fresh]
            # A view of an argument holds no new values.
            views = returns_view(call.operation)
            read = [place for place, memory in enumerate(numbered) if not (views and memory in input_memories)]
            digests = dict(zip(read, self._digests([fresh[place] for place in read]), strict=True))
            results = [(memory, digests.get(place, "")) for place, memory in enumerate(numbered)]
            if not produced and outputs is not None:  # a number that is read, as by `.item()`
                results.append((-1, _text(outputs)))
            changed = self._digests([tensors[place] for place in written])
            results += zip((inputs[place][0] for place in written), changed, strict=True)
            now = self._drawn_from(call.values) if call.is_random else {}
            drew = [(name, state, now[name]) for name, state in states.items() if now[name] != state]
            self._states = {**self._states, **{name: state for name, _, state in drew if name in self._states}}
            op = str(call.operation)
            self.write(CallRecord(self.step, op, line, phase, module, thread, inputs, written, numbers, results, drew))

        return after

    def shown(self, values: Any) -> list[tuple[int, str]]:
        """Return the memory number and the digest of each tensor among the values."""
        tensors = [value for value in leaves(values) if isinstance(value, torch.Tensor)]
        return [
            (self.memories.number(tensor), digest)
            for tensor, digest in zip(tensors, self._digests(tensors), strict=True)
        ]

    def write(self, call: CallRecord) -> None:
        line = call.to_line()
        self._pending.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes >= FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        lines, self._pending, self._pending_bytes = self._pending, [], 0
        if lines:
            self._file.append(lines)

    def forget(self) -> None:
        """Discard the lines that are not written yet."""
        self._pending.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _drawn_from(self, values: Sequence[Any]) -> dict[str, str]:
        """Return the states of the generators that a call may draw from."""
        generators = [value for value in values if isinstance(value, torch.Generator)]
        if generators:
            with without_dispatch_modes(), without_function_modes():
                digests = [hash_text(self._digester.digest([generator.get_state()])) for generator in generators]
            return {f"{OWN} {place}" if place else OWN: digest for place, digest in enumerate(digests)}
        states = self._generators.read()
        return {name: states[name] for name in (TORCH, self._device) if name in states}

    def _digests(self, tensors: Sequence[torch.Tensor]) -> list[str]:
        if not tensors:
            return []
        records = self._digester.digest(tensors)
        hashes = [hash_text(records[start : start + RECORD_BYTES]) for start in range(0, len(records), RECORD_BYTES)]
        return ["" if int(hash_, 16) == 0 else hash_ for hash_ in hashes]  # the digest 0 means unreadable


def numbers_in(values: Sequence[Any]) -> str:
    """Return a call's arguments other than tensors, as text."""
    return ", ".join(_text(value) for value in values if not isinstance(value, torch.Tensor))[:MOST_TEXT]


def _text(value: Any) -> str:
    """Return a number or setting as text. Return only the type of any other value: its text may contain an address."""
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__

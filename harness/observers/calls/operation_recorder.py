"""Writes a line for every aten op of a step, with the digests of its outputs, and the outputs themselves on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from ...records import frames
from ...records.values.digest_record import RECORD_BYTES
from ...tape.files.journal_writing import AppendFile, FrameFile, bytes_of
from ...tape.recording.followed_calls import IDLE
from ...tape.tape import leaves
from ...torch_private.dispatching import InterceptedOps, dispatch_modes
from ..values.digest import Digester
from .native_ops import NativeOps

FLUSH_AT = 1 << 16
"""Number of bytes of op lines that are buffered before they are written. A killed run loses no more than that."""

DESCRIPTIONS_KEPT = 10_000
"""The number of kept texts that describe an op and the shapes of its tensors. Steps repeat their calls."""


class RecordedOps(InterceptedOps):
    """A dispatch mode that passes each op that has run to `record`, except ops that compute nothing.

    It does what `FollowedOps` does for consumers that need nothing before an op runs, with fewer calls of functions.
    """

    def __init__(self, record: Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        outputs = operation(*args, **kwargs)
        if operation.namespace not in IDLE:
            self._record(operation, args, kwargs, outputs)
        return outputs


class OperationRecorder:
    """Enters a dispatch mode for each chosen step, or lets native code record the step.

    Ops are filed under the innermost of `named_phases` if the script has named a phase, otherwise under `phase`.
    """

    def __init__(
        self,
        folder: Path,
        digester: Digester,
        guard: AbstractContextManager[None],
        named_phases: Sequence[str] = (),
        *,
        values: bool,
    ) -> None:
        self.named_phases = named_phases
        self.native: NativeOps | None = None
        """Records the steps that begin from now on, unless a dispatch mode is active."""
        self._phase = "forward"
        self._recording_natively = False
        self._lines = AppendFile(folder / frames.OPS)
        self._tensors = FrameFile(folder / frames.TENSORS) if values else None
        self._digester = digester
        self._guard = guard
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._mode: RecordedOps | None = None
        self._descriptions: dict[Any, str] = {}
        self._step = 0
        self._index = 0
        self._stopped = False

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        self.phase_changed()

    def phase_changed(self) -> None:
        """File the following ops under the current phase."""
        if self._recording_natively and self.native is not None:
            self.native.phase(self._current_phase())

    def stop(self) -> None:
        """Stop recording and writing."""
        self._stopped = True
        self._pending.clear()
        if self._recording_natively and self.native is not None:
            self._recording_natively = False
            self.native.forget()

    def enter(self, step: int) -> None:
        self._phase, self._step, self._index = "forward", step, 0
        if self.native is None or dispatch_modes():
            self._enter_mode()
        else:
            self._recording_natively = True
            self.native.phase(self._current_phase())
            self.native.enter(self._lines.descriptor(), step)

    def record_in_python(self) -> None:
        """Record the rest of the step, and all later steps, in Python."""
        if self._recording_natively:
            self._leave_native()
            self._enter_mode()
        self.native = None

    def leave(self) -> None:
        self._leave_native()
        if self._mode is not None:
            # Clear the mode before leaving it: `script_ended` calls `leave` again if a step was under way.
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)
        self.flush()

    def _enter_mode(self) -> None:
        self._mode = RecordedOps(self.record)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _leave_native(self) -> None:
        if self._recording_natively and self.native is not None:
            self._recording_natively = False
            self._index = self.native.leave()

    def _current_phase(self) -> str:
        return self.named_phases[-1] if self.named_phases else self._phase

    def flush(self) -> None:
        lines, self._pending, self._pending_bytes = self._pending, [], 0
        if lines:
            self._lines.append(lines)

    def record(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Any) -> None:
        """Record a call that has run."""
        if self._stopped:
            return
        with self._guard:
            if isinstance(outputs, torch.Tensor):
                produced = [outputs]
            else:
                produced = [value for value in leaves(outputs) if isinstance(value, torch.Tensor)]
            arguments: list[torch.Tensor] = []
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    arguments.append(value)
                elif isinstance(value, (list, tuple)):
                    arguments += [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
            phase = self._current_phase()
            # A step has thousands of calls, which the next step repeats: only their numbers and digests are new.
            signature = [(tensor.dtype, tensor.shape) for tensor in (*arguments, *produced)]
            key = (phase, operation, len(arguments), *signature)
            described = self._descriptions.get(key)
            if described is None:
                if len(self._descriptions) >= DESCRIPTIONS_KEPT:
                    self._descriptions.clear()
                described = self._descriptions[key] = _described(phase, operation, arguments, produced)
            digests = ""
            if produced:
                text = self._digester.digest(produced).hex()
                starts = range(0, len(text), 2 * RECORD_BYTES)
                digests = '","'.join([text[start : start + 2 * RECORD_BYTES] for start in starts])
                digests = f',"digests":["{digests}"]'
            if self._tensors is not None:
                self._write_values(self._tensors, produced)
            line = f'{{"step":{self._step},"index":{self._index},{described}{digests}}}\n'.encode()
            self._index += 1
            self._pending.append(line)
            self._pending_bytes += len(line)
            if self._pending_bytes >= FLUSH_AT:
                self.flush()

    def _write_values(self, file: FrameFile, produced: Sequence[torch.Tensor]) -> None:
        for tensor in produced:
            # If a tensor has no values or is not dense, only its digest is written.
            if not tensor.is_meta and tensor.layout == torch.strided:
                buffer = bytes_of(tensor.detach().cpu())
                file.frame(self._index, self._step, [buffer], len(buffer))


def _described(phase: str, operation: Any, arguments: Sequence[torch.Tensor], produced: Sequence[torch.Tensor]) -> str:
    """Return the part of an op's line that other calls may share, as JSON without braces."""
    inputs, outputs = (
        [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
        for tensors in (arguments, produced)
    )
    fields = {"phase": phase, "op": str(operation), "inputs": inputs, "outputs": outputs}
    return json.dumps(fields, separators=(",", ":"))[1:-1]

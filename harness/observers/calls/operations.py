"""Records every aten op of a step.

Compiled regions are opaque to this recorder: compilers ignore its dispatch mode, so their code stays unchanged.
"""

from __future__ import annotations

from pathlib import Path

from ...hooks.observer import Observer, Progress, RecordingSurroundings
from ...records.modes.mode_registry import DEFERRED_DEVICES
from .native_choice import NativeChoice
from .operation_recorder import OperationRecorder


class RecordedOperations(Observer):
    """Records the ops of the chosen steps. Its dispatch mode is entered above all others, and is left first.

    Native code takes the place of the dispatch mode in an eager mode of the CPU (`NativeChoice`).
    """

    doing = "recording an op"

    def __init__(self, around: RecordingSurroundings) -> None:
        self._around = around
        values = around.config.records("tensors")
        self._recorder = OperationRecorder(
            Path(around.config.journal), around.digester, around.guard(self), around.phases, values=values
        )
        self._choice: NativeChoice | None = None
        if around.mode.device == "cpu" and not around.mode.capabilities.compiles and not values:
            self._choice = NativeChoice(self._recorder, around.write, around.guard(self))
        self._active = around.mode.device not in DEFERRED_DEVICES
        self._step = -1

    def install(self) -> None:
        if not self._active:
            device = self._around.mode.device
            self._around.notice(
                f"ops are not recorded in this mode: on {device}, an op has no value yet when it is called; "
                "losses, parameters and digests are recorded as usual"
            )
        self.begins(0)  # everything before the script's first forward belongs to its first step

    def begins(self, step: int) -> None:
        if step != self._step:
            self._step = step
            if self._active and step in self._around.config.steps:
                if self._choice is not None:
                    self._choice.choose(step)
                self._recorder.enter(step)

    def reached(self, progress: Progress, step: int) -> None:
        if progress == "backward":
            self._recorder.phase = "backward"

    def backward_ended(self, step: int) -> None:
        self._recorder.phase = "optimizer"

    def phase(self, name: str, begins: bool) -> None:
        self._recorder.phase_changed()

    def step_ended(self, step: int) -> None:
        self._recorder.leave()

    def script_ended(self, failure: str) -> None:
        self._recorder.leave()

    def close(self) -> None:
        if self._choice is not None:
            self._choice.close()

    def forget(self) -> None:
        self._active = False
        self._recorder.stop()
        if self._choice is not None:
            self._choice.forget()

"""Records the tape of a script from its first line until it first calls a model.

It is recorded on request, to find out why two training runs differ in their data or initial values. The tape's outputs
are the first batch (`argument 0`) and the model's initial values (`parameter net.weight`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...hooks.observer import Observer, RecordingSurroundings
from ...tape.files.tape_file import TAPES, tape_file, write_tape
from ...tape.recording.tape_recorder import TapeRecorder
from ...tape.replaying.ensemble import StepNoise, write_noise
from ...tape.storages import is_plain
from ...tape.tape import NotReplayable
from ...torch_private.dispatching import foreign_dispatch_mode, unseen
from .batches import input_tensors

MOST_CALLS = 20_000
"""Maximum number of ops of a recorded preparation: more could not be aligned in reasonable time."""


class PreparationRecording(Observer):
    """Writes the tape as that of step 0. If there can be no tape, writes the reason in place of the step's noise."""

    def __init__(self, around: RecordingSurroundings) -> None:
        self._folder = around.folder / TAPES
        self._named = around.named
        self._recorder: TapeRecorder | None = TapeRecorder(0, around.config.script, modules=False, most=MOST_CALLS)
        self._has_root = False

    def install(self) -> None:
        self.doing = "recording the preparation"
        if self._recorder is not None:
            self._recorder.start()

    def taken_over(self, module: torch.nn.Module, step: int) -> None:
        self._has_root = True

    def called_with(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        recorder = self._recorder
        if recorder is None or not self._has_root:
            return
        with unseen():
            tensors = {f"argument {place}": tensor for place, tensor in input_tensors(args, kwargs).items()}
            tensors |= {f"{entry.kind} {entry.name}": entry.tensor for entry in self._named()}
            recorder.called_with({name: tensor for name, tensor in tensors.items() if is_plain(tensor)})
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            write_tape(tape_file(self._folder, 0), recorder.tape())
        except NotReplayable as error:
            write_noise(self._folder, StepNoise(0, reason=str(error)))

    def script_ended(self, failure: str) -> None:
        self.close()

    def close(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if foreign_dispatch_mode() is None:
            recorder.stop()
        else:  # The recorder's dispatch mode is below one of the script's own, which must be left first.
            recorder.give_up("a torch dispatch mode of the script is active")

    def forget(self) -> None:
        self._recorder = None

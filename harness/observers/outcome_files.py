"""What a step gave: one file a chosen step, with all that a watcher is shown."""

from __future__ import annotations

from pathlib import Path

import torch

from ..hooks.mode_protocol import Mode
from ..hooks.observer import Observer
from ..records.step_files import outcome_file
from ..tape.tensor_file import write_tensors
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from .operations import WITHOUT_VALUES

SCHEMA = 1


class OutcomeFiles(Observer):
    """Copies what it is shown of a step; `write` puts the copies of ended steps into files.

    On devices without values a copy is a part of the graph that is executed anyway, and is read after it.
    """

    def __init__(self, run: Path, mode: Mode) -> None:
        self._run = run
        self._mode = mode
        self._values: dict[str, torch.Tensor] = {}
        self._ended: list[tuple[int, dict[str, torch.Tensor]]] = []

    def begins(self, step: int) -> None:
        self._values = {}

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            if tensor.device.type in WITHOUT_VALUES:
                self._values[name] = tensor.clone()
            else:
                self._values[name] = tensor.detach().to("cpu", copy=True)

    def step_ended(self, step: int) -> None:
        self._ended.append((step, self._values))
        self._values = {}

    def write(self) -> None:
        """Write the steps that have ended: their values can be read now. Raises OSError (disk full)."""
        ended, self._ended = self._ended, []
        for step, values in ended:
            path = outcome_file(self._run, step)
            path.parent.mkdir(parents=True, exist_ok=True)
            read = dict(zip(values, self._mode.read(list(values.values())), strict=True))
            write_tensors(path, read, {"schema": SCHEMA, "step": step})

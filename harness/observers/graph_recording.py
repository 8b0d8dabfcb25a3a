"""Notifies a mode's graph capture of each moment of the training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..hooks.graph_capture import Capture, CaptureRequest
from ..hooks.mode_protocol import CuttingMode, Moment
from ..hooks.observer import Observer, Progress, RecordingSurroundings
from ..records.tools.graph_record import FOLDER, GraphFolder

CLOSED: dict[Progress, Moment] = {"optimizer": "backward", "step": "step", "end": "end"}
"""Maps the point that the training reaches to the moment that the mode has just closed."""


class GraphRecording(Observer):
    """Writes the captured graphs into the run's folder, or records that the mode has no capture."""

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._guard = around.guard(self)
        self._folder = GraphFolder(around.folder / FOLDER, config.mode.name)
        request = CaptureRequest(self._folder, config.script, config.graph_steps, around.bound, self._capture_failed)
        capture = mode.capture(request)
        self._capture = capture or Capture()
        if capture is None:
            reason = f"graphs cannot be captured on {mode.device}"
            self._folder.unavailable("pre", reason)
            around.notice(reason)
        # A mode that cuts graphs calls back before each cut: only then can the graph of the script's own mark_step be
        # captured.
        if isinstance(mode, CuttingMode):
            mode.observe_cuts(self.about_to_cut)

    def install(self) -> None:
        self._capture.install()

    def adopted(self, module: torch.nn.Module) -> None:
        self._capture.adopted(module)

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        self._capture.backward_started(started)

    def about_to_cut(self) -> None:
        """Capture a lazy graph that a mark_step is about to execute."""
        with self._guard:
            self._capture.about_to_cut()

    def closing(self, moment: Moment, step: int) -> None:
        self._capture.closing(moment)

    def reached(self, progress: Progress, step: int) -> None:
        if progress in CLOSED:
            self._folder.step = step
            self._capture.reached(CLOSED[progress])

    def close(self) -> None:
        capture, self._capture = self._capture, Capture()
        try:
            capture.remove()
        finally:
            self._folder.close()

    def forget(self) -> None:
        self._folder.close()

    def _capture_failed(self, error: Exception) -> None:
        """Report an error that the capture raised when the observed code, not the recorder, called it."""
        with self._guard:  # the guard reports the error and ends the capture, as if the recorder had called the capture
            raise error

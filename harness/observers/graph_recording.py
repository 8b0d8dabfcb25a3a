"""Leads the moments of the training to the capture of the mode's graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..backends.captures import CaptureRequest, capture_for
from ..hooks.mode_protocol import Capture, CuttingMode, Moment
from ..hooks.observer import Observer, Progress, RecordingSurroundings
from ..records.graph_record import FOLDER, GraphFolder

CLOSED: dict[Progress, Moment] = {"optimizer": "backward", "step": "step", "end": "end"}
"""The moment that the mode has just closed when the training is at this point."""


class GraphRecording(Observer):
    """Writes the captured graphs into the run's folder. Where a mode has no capture, it writes that."""

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._guard = around.guard(self)
        self._folder = GraphFolder(around.folder / FOLDER, config.mode.name)
        request = CaptureRequest(self._folder, config.script, config.graph_steps, around.bound, self._capture_failed)
        base = "compile" if mode.capabilities.compiles else config.mode.base
        self._capture: Capture | None = capture_for(base, request)
        if self._capture is None:
            reason = f"graphs cannot be captured on {mode.device}"
            self._folder.unavailable("pre", reason)
            around.notice(reason)
        # A mode that cuts graphs reports it: the graph of a script's own mark_step is seen before it is gone.
        if isinstance(mode, CuttingMode):
            mode.observe_cuts(self.about_to_cut)

    def install(self) -> None:
        if self._capture is not None:
            self._capture.install()

    def adopted(self, module: torch.nn.Module) -> None:
        if self._capture is not None:
            self._capture.adopted(module)

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        if self._capture is not None:
            self._capture.backward_started(started)

    def about_to_cut(self) -> None:
        """A lazy graph is about to be executed by a mark_step."""
        with self._guard:
            cut = getattr(self._capture, "about_to_cut", None)
            if cut is not None:
                cut()

    def closing(self, moment: Moment, step: int) -> None:
        if self._capture is not None:
            self._capture.closing(moment)

    def reached(self, progress: Progress, step: int) -> None:
        if progress in CLOSED:
            self._folder.step = step
            if self._capture is not None:
                self._capture.reached(CLOSED[progress])

    def close(self) -> None:
        capture, self._capture = self._capture, None
        try:
            if capture is not None:
                capture.remove()
        finally:
            self._folder.close()

    def forget(self) -> None:
        self._folder.close()

    def _capture_failed(self, error: Exception) -> None:
        """Handle a failure of the capture that happened when the observed code called it, not the recorder."""
        with self._guard:  # which makes it leave, as if it had been called
            raise error

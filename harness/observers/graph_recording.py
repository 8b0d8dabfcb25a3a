"""The capture of a run's graphs, kept out of the training's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ..backends.capture_request import CaptureRequest, NamedTensors
from ..backends.captures import capture_for
from ..hooks.graph_capture import Capture
from ..hooks.mode_protocol import Mode, Moment, compiles
from ..records.graph_folder import FOLDER, GraphFolder
from ..records.run_config import RunConfig


class GraphRecording:
    """Leads what happens in the training to the capture of its mode.

    A failure of the capture is told to `notice` and ends it. Without `--graphs` nothing is captured, and every
    method does nothing.
    """

    def __init__(
        self, config: RunConfig, mode: Mode, named_tensors: NamedTensors, notice: Callable[[str], None]
    ) -> None:
        self._notice = notice
        self._capture: Capture | None = None
        self._folder: GraphFolder | None = None
        if not config.graphs:
            return
        with _Guard(self):
            self._folder = GraphFolder(Path(config.journal).parent / FOLDER, config.mode.name)
            request = CaptureRequest(
                self._folder, config.script, config.graph_steps, named_tensors, self._failed
            )
            self._capture = capture_for("compile" if compiles(mode) else config.mode.base, request)
            if self._capture is None:
                reason = f"graphs cannot be captured on {mode.device}"
                self._folder.unavailable("pre", reason)
                notice(reason)
            observe = getattr(mode, "observe_cuts", None)
            if observe is not None:
                observe(self.about_to_cut)

    def install(self) -> None:
        with _Guard(self):
            if self._capture is not None:
                self._capture.install()

    def adopted(self, module: torch.nn.Module) -> None:
        with _Guard(self):
            if self._capture is not None:
                self._capture.adopted(module)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        with _Guard(self):
            if self._capture is not None:
                self._capture.backward_started(losses)

    def about_to_cut(self) -> None:
        """A lazy graph is about to be executed by a mark_step."""
        with _Guard(self):
            cut = getattr(self._capture, "about_to_cut", None)
            if cut is not None:
                cut()

    def closing(self, moment: Moment) -> None:
        with _Guard(self):
            if self._capture is not None:
                self._capture.closing(moment)

    def reached(self, moment: Moment, step: int) -> None:
        """The mode has closed a piece of work; from here on it is step `step`."""
        with _Guard(self):
            if self._folder is not None:
                self._folder.step = step
            if self._capture is not None:
                self._capture.reached(moment)

    def close(self) -> None:
        """Capture no longer: the script has ended."""
        capture, self._capture = self._capture, None
        with _Guard(self):
            if capture is not None:
                capture.remove()
        if self._folder is not None:
            self._folder.close()

    def forget(self) -> None:
        """Write nothing any more: this is a fork of the process."""
        if self._folder is not None:
            self._folder.close()

    def _failed(self, error: Exception) -> None:
        if self._capture is not None:
            text = f"the capture of graphs failed and stops here: {type(error).__name__}: {error}"
            self.close()
            self._notice(text)


class _Guard:
    """Keeps a failure of the capture out of the training."""

    __slots__ = ("_recording",)

    def __init__(self, recording: GraphRecording) -> None:
        self._recording = recording

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._recording._failed(error)
            return True
        return False

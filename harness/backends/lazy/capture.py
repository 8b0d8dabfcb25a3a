"""The graphs of the lazy mode: each graph that the core executes, before and after TorchScript's optimisation.

The core itself writes the IR of each graph that it executes into a file. That is not enough: the calls of the core's
kernels are followed too, to learn the op, module and line that made each node, and the tensor of each value.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence

import torch

from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Moment
from ...records.tools.graph_record import LAZY_DUMP
from ...torch_private.deferred.lazy import lazy_tensor_id, set_profiled_runs
from ..deferred_calls import KnownValues
from .lazy_dump import Counted, DumpFile
from .lazy_executed import ExecutedGraphs
from .lazy_following import Following


class LazyCapture(Capture):
    """The capture of the graphs that contain ops of the request's `steps`.

    After the last of these steps the capture continues until the pending graphs have been executed, because a script
    may call mark_step after its optimizer's step. A failure of the capture in the middle of an op is raised at the next
    `Moment`.
    """

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._folder = request.folder
        self._dump = DumpFile(request.folder.path / LAZY_DUMP)
        self._known_values = KnownValues(number_of)
        self._executed = ExecutedGraphs(request.folder, self._known_values, request.steps)
        self._following: Following | None = None
        self._counted: Counted | None = None
        self._profiled_runs: int | None = None
        self._has_model = False

    def install(self) -> None:
        self._profiled_runs = set_profiled_runs(0)
        self._counted = Counted()
        self._dump.pause()
        atexit.register(_remove, self._dump, os.getpid())
        self._begin()

    def adopted(self, module: torch.nn.Module) -> None:
        self._has_model = True
        following = self._current()
        if following is not None:
            following.is_setup = False
            following.name()

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        following = self._current()
        if following is None:
            return
        self._known_values.name_losses(losses)
        following.places.phase = "backward"

    def about_to_cut(self) -> None:
        """Name the graph's outputs after the script's tensors, just before a mark_step."""
        following = self._current()
        if following is not None:
            following.poll()
            following.name()

    def closing(self, moment: Moment) -> None:
        self.about_to_cut()
        following = self._following
        if following is not None and moment == "backward":
            following.places.phase = "optimizer"
            if following.is_done:
                self._end()

    def reached(self, moment: Moment) -> None:
        following = self._current()
        if following is not None and self._counted is not None:
            following.poll()
            following.name()
            self._counted.put_down(following.step)
        if moment == "step":
            self._begin()

    def remove(self) -> None:
        try:
            if self._following is not None and self._following.kept.error is None:
                self._following.poll()
        finally:
            self._end()
            if self._profiled_runs is not None:
                set_profiled_runs(self._profiled_runs)
        counted, self._counted = self._counted, None
        if counted is not None:
            step = self._folder.step
            values = {f"total_{name}": value for name, value in counted.total().items()}
            if step in self._request.steps:
                values |= counted.steps.get(step, {})
            self._folder.counters(values)

    def _current(self) -> Following | None:
        """Return the current `Following`, None if there is none. Raise any failure since the last call."""
        if self._following is not None:
            self._following.kept.tell()
            if self._following.is_over:
                self._end()
        return self._following

    def _begin(self) -> None:
        """Begin a step."""
        request, step = self._request, self._folder.step
        is_new = self._following is None and step in request.steps and self._counted is not None
        if is_new and self._counted is not None:
            self._following = Following(self._known_values, self._dump, self._executed, self._counted, request)
            self._following.is_setup = not self._has_model
        if self._following is not None:
            self._following.enter(step)
            self._following.name()
        if is_new and self._following is not None and step > 0:
            self._following.name_what_they_view()

    def _end(self) -> None:
        following, self._following = self._following, None
        if following is None or self._counted is None:
            return
        following.close()
        if not self._executed.has_any:
            self._folder.unavailable("pre", "the lazy core executed nothing in the steps whose graphs were requested")
        before = self._folder.step
        for step, tally in self._counted.steps.items():
            if step in self._request.steps:
                self._folder.step = step
                self._folder.counters(tally)
        self._folder.step = before


def number_of(tensor: torch.Tensor) -> int | None:
    """Return the lazy core's number for a tensor, None for a tensor on a different device."""
    return lazy_tensor_id(tensor) if tensor.device.type == "lazy" else None


def _remove(dump: DumpFile, process: int) -> None:
    """Remove the dump in the process that wrote it. Do nothing in a fork of that process."""
    if os.getpid() == process:
        dump.remove()

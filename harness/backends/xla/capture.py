"""Capture the graphs of mode `xla`: the IR of each graph that torch_xla executes, and the HLO that XLA makes of it.

torch_xla writes the IR when it executes a graph; XLA writes the HLO when it compiles one. Neither contains everything:
the calls of torch_xla's kernels are followed too, to learn the op, module and line that made each node, and the tensor
of each value.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Moment
from ...records.tools.graph_record import XLA_DUMP, xla_modules
from ...torch_private.deferred.xla import note_xla_locations
from ...torch_private.deferred.xla_tensors import xla_value_id
from ...torch_private.patches import Undo
from ..deferred_calls import FollowedCall, KnownValues
from .xla_calls import XlaCalls
from .xla_graphs import XlaGraphs
from .xla_ir import cut_of, executed_in

PATIENCE = 20_000
"""The number of kernel calls after which the capture stops waiting for an execution.

Each call that is kept takes about a kilobyte.
"""


class XlaCapture(Capture):
    """The capture of the graphs that contain ops of the request's `steps`.

    After the last of these steps the capture continues until the pending work is executed, since a script may call
    mark_step after its optimizer step. A failure of the capture in the middle of an op is raised at the next `Moment`.
    """

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._folder = request.folder
        self._dump = request.folder.path / XLA_DUMP
        self._modules = xla_modules()
        self._known_values = KnownValues(lambda tensor: xla_value_id(tensor) if tensor.device.type == "xla" else None)
        self._executed = XlaGraphs(request.folder, self._known_values, request.steps, self._modules)
        self._following: XlaCalls | None = None
        self._written: Path | None = None
        self._read = 0
        self._has_model = self._has_backward = self._has_taken = False
        self._undo: Undo = lambda: None

    def install(self) -> None:
        # torch_xla reads these variables at its first graph, and appends the process number to the file's name.
        os.environ["XLA_SAVE_TENSORS_FILE"] = str(self._dump)
        os.environ["XLA_SAVE_TENSORS_FMT"] = "text"
        self._undo = note_xla_locations()
        self._begin()

    def adopted(self, module: torch.nn.Module) -> None:
        self._has_model = True
        following = self._current()
        if following is not None:
            following.is_setup = False
            self._name()

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        following = self._current()
        self._take()
        self._has_backward = True
        if following is not None:
            self._name()
            self._known_values.name_losses(losses)
            following.places.phase = "backward"

    def about_to_cut(self) -> None:
        """Name the graph's outputs after the script's tensors, just before an explicit execution."""
        if self._current() is not None:
            self._take()
            self._name()

    def closing(self, moment: Moment) -> None:
        self.about_to_cut()
        if self._following is not None and moment == "backward":
            self._following.places.phase = "optimizer"
            self._end_if_done()

    def reached(self, moment: Moment) -> None:
        following = self._current()
        self._take()
        if following is not None:
            self._name()
        if moment == "step":
            self._begin()

    def remove(self) -> None:
        if self._following is None or self._following.kept.error is None:
            self._take()
        self._end()
        self._undo()
        for name in ("XLA_SAVE_TENSORS_FILE", "XLA_SAVE_TENSORS_FMT"):
            os.environ.pop(name, None)
        for path in self._dump.parent.glob(f"{XLA_DUMP}.*"):
            path.unlink(missing_ok=True)
        if self._modules is not None:
            shutil.rmtree(self._modules, ignore_errors=True)

    def _current(self) -> XlaCalls | None:
        """Return the follower of torch_xla's calls, if there is one. Raise any failure since the last call."""
        if self._following is not None:
            self._following.kept.tell()
        return self._following

    def _begin(self) -> None:
        """Begin a step."""
        step = self._folder.step
        is_wanted = step in self._request.steps
        if not is_wanted:
            self._end_if_done()
        if self._following is None and is_wanted:
            self._following = XlaCalls(self._known_values, self._request, self._take)
            self._following.is_setup = not self._has_model
        if is_wanted:
            self._has_taken = False
        if self._following is not None:
            self._following.enter(step, is_wanted=is_wanted)
            self._name()

    def _end_if_done(self) -> None:
        """Stop waiting once a graph has been taken since the last wanted step began, or after PATIENCE calls.

        The earliest moment is after the backward of the first step that is not wanted; the next is the start of the
        second such step.
        """
        following = self._following
        if following is not None and following.is_pending and (self._has_taken or following.count > PATIENCE):
            self._end()

    def _end(self) -> None:
        following, self._following = self._following, None
        if following is None:
            return
        following.close()
        if not self._executed.has_any:
            self._folder.unavailable("pre", "torch_xla executed nothing in the steps whose graphs were requested")

    def _name(self) -> None:
        # Name nothing before the model is known: a parameter would be named by its position in the optimizer, and a
        # value keeps its first name.
        if self._has_model or self._has_backward:
            self._known_values.name(self._request.named_tensors())

    def _take(self, during: FollowedCall | None = None) -> None:
        """Take the graphs executed since the last call. `during` is the kernel call that executed them, if any."""
        if self._written is None:
            self._written = next(iter(self._dump.parent.glob(f"{XLA_DUMP}.*")), None)
        if self._written is None or self._written.stat().st_size <= self._read:
            return
        with self._written.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        around: list[FollowedCall] = []
        while during is not None:
            around.append(during)
            during = None if during.parent is None else self._known_values.calls[during.parent]
        if self._following is not None:
            self._name()
        for executed in executed_in(data.decode("utf-8", "replace")):
            if all(node.is_input for node in executed.nodes):  # an available value is read or copied
                continue
            self._executed.compiled(executed)
            if self._following is not None:
                cut = cut_of(executed, self._request.script, around)
                step = self._executed.take(executed, cut, self._following.step, is_awaited=not self._has_taken)
                self._has_taken = self._has_taken or step is not None

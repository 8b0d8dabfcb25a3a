"""The graphs of mode `xla`: the IR of each that torch_xla executes, and the HLO that XLA has made of it.

torch_xla itself writes the IR when it executes a graph, XLA the HLO when it compiles one. Both are read afterwards, so
nothing of the training is touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ...hooks.mode_protocol import Moment
from ...records.graph_record import XLA_DUMP, Graph, xla_modules
from ...torch_private.patches import Undo
from ...torch_private.xla import note_xla_locations
from ..captures import CaptureRequest
from .hlo_module import post_graph, read_hlo
from .xla_ir import ExecutedIr, cut_of, executed_in, pre_graph

OPTIMIZED = ".cpu_after_optimizations.txt"


class XlaCapture:
    """Reads what was executed in the request's `steps` as soon as it was."""

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._folder = request.folder
        self._dump = request.folder.path / XLA_DUMP
        self._modules = xla_modules()
        self._names: dict[str, str] = {}
        self._compiled: dict[str, Path | None] = {}
        self._taken: set[Path] = set()
        self._read = 0
        self._updates = False
        self._undo: Undo = lambda: None

    def install(self) -> None:
        # torch_xla reads these at its first graph, and appends the number of the process.
        os.environ["XLA_SAVE_TENSORS_FILE"] = str(self._dump)
        os.environ["XLA_SAVE_TENSORS_FMT"] = "text"
        self._undo = note_xla_locations()

    def adopted(self, module: torch.nn.Module) -> None:
        pass

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        self._take(self._folder.step)

    def closing(self, moment: Moment) -> None:
        pass

    def reached(self, moment: Moment) -> None:
        """What was executed since belongs to the step that was under way: at its end the next has begun."""
        self._take(self._folder.step - (moment == "step"))
        self._updates = moment == "backward"

    def remove(self) -> None:
        self._take(self._folder.step)
        self._undo()
        for name in ("XLA_SAVE_TENSORS_FILE", "XLA_SAVE_TENSORS_FMT"):
            os.environ.pop(name, None)
        for path in self._dump.parent.glob(f"{XLA_DUMP}.*"):
            path.unlink(missing_ok=True)
        if self._modules is not None:
            shutil.rmtree(self._modules, ignore_errors=True)

    def _take(self, step: int) -> None:
        before, self._folder.step = self._folder.step, step
        try:
            for executed in self._executed():
                graph = pre_graph(executed, self._request.script, step, updates=self._updates)
                if not graph.nodes:  # a value that was there is read, or copied
                    continue
                if executed.hash not in self._compiled:  # also of a step that is not wanted: modules count
                    self._compiled[executed.hash] = self._module_of(executed, graph)
                if step in self._request.steps:
                    self._write(executed, graph)
        finally:
            self._folder.step = before

    def _executed(self) -> list[ExecutedIr]:
        written = next(iter(self._dump.parent.glob(f"{XLA_DUMP}.*")), None)
        if written is None:
            return []
        with written.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        return executed_in(data.decode("utf-8", "replace"))

    def _write(self, executed: ExecutedIr, graph: Graph) -> None:
        cut = cut_of(executed, self._request.script)
        name = self._names.get(executed.hash)
        if name is None:
            name = self._names[executed.hash] = self._folder.reserve(graph.phase)
            pre = replace(graph, name=f"{name}-pre", cut=cut)
            self._folder.write(pre)
            module = self._compiled[executed.hash]
            if module is None:
                self._folder.unavailable("post", f"XLA has written nothing of {pre.name}")
            else:
                post = post_graph(read_hlo(module.read_text(encoding="utf-8")), pre)
                self._folder.write(replace(post, name=f"{name}-post", hash=pre.hash, pre=pre.name))
        self._folder.executed(name, executed.hash, cut)

    def _module_of(self, executed: ExecutedIr, graph: Graph) -> Path | None:
        """What XLA has compiled for a graph that is executed for the first time: modules are numbered as they are
        compiled. One that gives another number of values is of something that torch_xla executed unseen."""
        if self._modules is None:
            return None
        given = sum(graph.values[name].binding != "constant" for name in graph.inputs)
        for path in sorted(self._modules.glob(f"module_*{OPTIMIZED}")):
            if path in self._taken:
                continue
            layout = path.read_text(encoding="utf-8").partition("\n")[0].partition("entry_computation_layout={")[2]
            inputs, _, outputs = layout.partition(")->")
            # One value may stand at several places of the IR, and is a parameter once.
            if inputs.count("[") <= given and outputs.count("[") == executed.roots:
                self._taken.add(path)
                return path
        return None

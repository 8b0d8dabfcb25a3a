"""Snapshots of the executions of compiled graphs.

A graph is executed unchanged. If a snapshot is wanted, the graph is executed again, op by op, on copies of its inputs.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...hooks.observer import Progress
from ...records.run.execution_facts import INPUTS
from ...snapshots.camera import Camera, is_finite
from ...snapshots.snapshot_observer import SnapshotObserver
from ...snapshots.snapshot_record import Circumstances, Reason, bytes_of_tensors
from ...tape.module_frames import ModuleFrames
from ...tape.recording.compiled_graphs import CompiledGraph
from ...tape.replaying.replay import generator_state
from ...torch_private.compiler.graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    called_like,
    is_compiled_by_inductor,
)
from ...torch_private.compiler.probing import copied_graph, watch_compiled_graphs
from ...torch_private.patches import Patches
from ..capturing.compiled_region import AotBindings, GraphSignature, ScriptNames, signature_of
from .compiled_interpreter import NodeNames, flat_outputs
from .execution_tape import CompiledExecution
from .unrolling import copied_tensors, written_inputs

NOTHING_SEEN = (
    "numdrift saw no execution of a compiled graph: the backend makes no graphs of aten ops, or found nothing to "
    "compile"
)


@dataclass(frozen=True, slots=True, eq=False)
class NamedGraph:
    """A graph that went into its compiler.

    `inputs` and `outputs` are the script's names for the graph's inputs and outputs, or the graph's own names.
    """

    name: str
    phase: str
    compiled: CompiledGraph
    inputs: Sequence[str]
    outputs: Sequence[str]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A region that dynamo compiles."""

    number: int
    signature: GraphSignature
    phase: str


class CompiledExecutions(SnapshotObserver):
    """The observer of executions, from `install` to `close`. It reports a failure to the camera and continues."""

    def __init__(self, camera: Camera, around: Circumstances, names: ScriptNames) -> None:
        self._camera = camera
        self._around = around
        self._names = names
        self._patches = Patches("the snapshots of compiled graphs")
        self._region: Region | None = None
        self._regions: dict[int | None, Region] = {}
        self._count = 0
        self._graphs: dict[int, NamedGraph] = {}
        self._node_names = NodeNames(around.script)
        self._saw_any = False

    def install(self) -> None:
        """Install the hooks. If one cannot be installed, install none and raise NotAvailable."""
        self._patches.also(watch_compiled_graphs(self))

    def reached(self, progress: Progress, step: int) -> None:
        """At the end, report if no execution was observed. The hooks observe executions as they happen."""
        if progress == "end" and not self._saw_any:
            self._camera.tell(NOTHING_SEEN)

    def close(self) -> None:
        self._patches.undo()
        self._graphs.clear()
        self._regions.clear()

    def around_dynamo(self, seen: DynamoGraph, compile_: Compile) -> Any:
        outer_region = self._region
        self._region = self._camera.attempt("reading dynamo's graph", lambda: self._begin(seen))
        try:
            return compile_()
        finally:
            self._region = outer_region

    def _begin(self, graph: DynamoGraph) -> Region:
        self._count += 1
        phase = "optimizer" if "/torch/optim/" in graph.file.replace("\\", "/") else "forward"
        return Region(self._count, signature_of(graph, self._names.by_identity()), phase)

    def around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        # A backward is compiled later, when dynamo is at another region. The key that it shares with its forward
        # identifies its region.
        region = self._regions.get(seen.key) if seen.phase == "backward" else self._region
        if region is None or seen.key is None:
            return compile_()
        self._regions[seen.key] = region
        graph = self._camera.attempt("reading a graph", lambda: self._named(region, seen.module, seen.phase))
        compiled = compile_()
        if graph is None:
            return compiled
        if is_compiled_by_inductor(compiled):
            # Calls of this object go through `around_call`. Ids may be reused, so the entry is removed with the object.
            self._graphs[id(compiled)] = graph
            weakref.finalize(compiled, self._graphs.pop, id(compiled), None)
            return compiled
        return self._watched(compiled, graph)

    def around_aot(self, phase: str, compiler: AotCompiler) -> AotCompiler:
        region = self._region
        if region is None:
            return compiler

        def compile_(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
            graph = self._camera.attempt("reading a graph", lambda: self._named(region, module, phase))
            compiled = compiler(module, example_inputs)
            return compiled if graph is None else self._watched(compiled, graph)

        return compile_

    def _watched(self, compiled: Any, graph: NamedGraph) -> Any:
        def run(*args: Any) -> Any:
            # In a boxed call, the callee empties the list of inputs, to release them as early as possible.
            boxed = len(args) == 1 and isinstance(args[0], list)
            return self._executed(graph, args[0] if boxed else args, lambda: compiled(*args))

        return called_like(compiled, run)

    def _named(self, region: Region, module: torch.fx.GraphModule, side: str) -> NamedGraph:
        phase = "backward" if side == "backward" else region.phase
        bindings = AotBindings(region.signature, side).of(module.graph)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        returned = flat_outputs(list(module.graph.nodes)[-1])
        outputs = [
            bindings.get(node.name, f"output {number}") if isinstance(node, torch.fx.Node) else ""
            for number, node in enumerate(returned)
        ]
        return NamedGraph(
            self._camera.name(phase),
            phase,
            CompiledGraph(region.number, side, copied_graph(module)),
            [bindings.get(node.name) or node.name for node in placeholders],
            outputs,
            any(not isinstance(node.meta.get("val"), torch.Tensor) for node in placeholders),
        )

    def around_call(self, compiled: Any, inputs: Sequence[Any], execute: Compile) -> Any:
        graph = self._graphs.get(id(compiled))
        return execute() if graph is None else self._executed(graph, inputs, execute)

    def _executed(self, graph: NamedGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        self._saw_any = True
        execution = self._camera.attempt("beginning a snapshot", lambda: self._begins(graph, inputs))
        if execution is None:
            return execute()
        try:
            outputs = execute()
        except Exception as error:
            if self._camera.choice.on == "error":
                message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                snapshot = functools.partial(execution.snapshot, [], self._node_names, "error", message)
                self._camera.attempt("taking a snapshot", lambda: self._camera.take(execution.wish, snapshot()))
            raise
        self._camera.attempt("taking a snapshot", lambda: self._ended(execution, outputs))
        return outputs

    def _begins(self, graph: NamedGraph, inputs: Sequence[Any]) -> CompiledExecution | None:
        devices = [value.device for value in inputs if isinstance(value, torch.Tensor)]
        index = next((device.index for device in devices if device.index is not None), 0)
        wish = self._camera.begins(graph.name, graph.phase, index)
        # At least the inputs will be written to disk. The size of the outputs is not known yet.
        if wish is None or not self._camera.has_room(wish, bytes_of_tensors(inputs) if INPUTS in wish.held else 0):
            return None
        if graph.compiled.phase == "forward":
            self._node_names.entered(graph.compiled, wish.execution.count, ModuleFrames())
        kinds = sorted({"cpu", *(str(device) for device in devices)} - {"meta"})
        return CompiledExecution(
            graph=graph.compiled,
            wish=wish,
            around=self._around,
            ports=(graph.inputs, graph.outputs),
            dynamic=graph.dynamic,
            inputs=list(inputs),
            copies=copied_tensors(inputs),
            generators={device: generator_state(device) for device in kinds},
        )

    def _ended(self, execution: CompiledExecution, outputs: Any) -> None:
        on = self._camera.choice.on
        if on == "error":
            return
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if on == "nonfinite":
            # Check the outputs, and the inputs that the graph wrote to.
            written = [execution.inputs[index] for index in written_inputs(execution.graph.module.graph).values()]
            pairs = [*zip(execution.ports[1], results, strict=False), *(("buffer", value) for value in written)]
            if all(is_finite(name, value) for name, value in pairs if isinstance(value, torch.Tensor)):
                return
        reason: Reason = "nonfinite" if on == "nonfinite" else "chosen"
        self._camera.take(execution.wish, execution.snapshot(results, self._node_names, reason))

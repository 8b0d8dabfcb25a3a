"""The graphs of torch.compile: dynamo's, the graphs that go into Inductor, and the kernels that come out of it."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from ...errors import NotAvailable
from ...hooks.graph_capture import Capture, NamedTensors
from ...hooks.mode_protocol import Moment
from ...records.tools.graph_record import Graph, GraphFolder
from ...torch_private.compiler.graph_kernels import Lowered, watch_kernels
from ...torch_private.compiler.graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    broken_captures,
    called_like,
    generated_module,
    is_compiled_by_inductor,
    number_decomposed_calls,
    retraces,
    watch_aot,
    watch_dynamo,
    watch_executions,
    watch_inductor,
    without_graph_caches,
)
from ...torch_private.patches import Patches, Undo
from .compiled_region import (
    AotBindings,
    CapturedRegion,
    Executable,
    PreGraph,
    ScriptNames,
    dynamo_bindings,
    signature_of,
)
from .fx_graph import GraphParts, Reading, modules_by_sequence, read_graph
from .generated_kernels import Compilation, GraphBefore, post_graph

WITHOUT_KERNELS = "backend {} generates no kernels: it runs the pre graph op by op"
NOTHING_MET = (
    "it found nothing that it was allowed to compile (the forward is under torch.compiler.disable, or the script calls "
    "the parts of the model one by one)"
)
WITHOUT_ATEN = "backend {} makes no graphs of aten ops: it runs what dynamo captured"

COUNTED = ("compiled", "cached", "executed", "dynamo", "breaks")
"""The events that are counted in a step. An execution is `cached` if it is not the first of its graph."""


class CompiledCapture(Capture):
    """The capture of every compilation of the run, in any step and by any backend.

    script: the path of the training script.
    named_tensors: returns the script's tensors by name. Without this function, a tensor is named by its path in a
        module that was passed to `adopted`.
    steps: the steps in which every execution is recorded.
    """

    def __init__(
        self,
        folder: GraphFolder,
        script: str,
        named_tensors: NamedTensors | None = None,
        steps: Container[int] = range(2),
    ) -> None:
        self._folder = folder
        self._script = script
        self._steps = steps
        self._names = ScriptNames(named_tensors)
        self._patches = Patches("the capture of compiled graphs")
        self._watching = False
        self._reported: set[str] = set()
        self._inside = Depth()
        self._counts: Counter[str] = Counter()
        self._region: CapturedRegion | None = None
        self._regions: dict[int | None, CapturedRegion] = {}
        self._lowered: Lowered | None = None
        self._executables: dict[int, Executable] = {}
        self._captured = False

    @property
    def inside(self) -> bool:
        """True while this thread executes or compiles a graph. Ops dispatched meanwhile are part of the graph."""
        return bool(self._inside)

    def install(self) -> None:
        hooks: list[tuple[str, Callable[[], Undo]]] = [
            ("dynamo", lambda: watch_dynamo(self._around_dynamo)),
            ("pre", lambda: without_graph_caches()),
            ("pre", lambda: watch_aot(self._around_aot)),
            ("pre", lambda: watch_inductor(self._around_inductor)),
            ("pre", lambda: number_decomposed_calls()),
            ("post", lambda: watch_kernels(self._generated, lambda error: self._failed("post", error))),
            ("executions", lambda: watch_executions(self._around_execution)),
        ]
        self._watching = True
        for stage, install_hook in hooks:
            try:
                self._patches.also(install_hook())
            except NotAvailable as error:
                self._unavailable(stage, str(error))

    def adopted(self, module: torch.nn.Module) -> None:
        self._names.adopt(module)

    def closing(self, moment: Moment) -> None:
        if moment == "step":
            self._end_step()

    def remove(self) -> None:
        self._watching = False
        self._patches.undo()
        self._end_step()
        self._regions.clear()
        self._executables.clear()

    def _end_step(self) -> None:
        if not self._captured and "dynamo" not in self._reported:
            reasons = self._try("dynamo", broken_captures) or [NOTHING_MET]
            self._unavailable("dynamo", f"dynamo captured no graph: {reasons[0]}")
        counts, self._counts = self._counts, Counter()
        counters = {name: counts[name] for name in COUNTED}
        wanted = self._folder.step in self._steps or counts["compiled"] or counts["dynamo"]
        if wanted and any(counters.values()):
            self._folder.counters(counters)

    # dynamo

    def _around_dynamo(self, seen: DynamoGraph, compile_: Compile) -> Any:
        before = self._region
        region = self._region = self._try("dynamo", lambda: self._begin(seen))
        try:
            with self._inside.entered():
                compiled = compile_()
        except BaseException as error:
            if region is not None and not retraces(error):
                self._try("dynamo", region.traced)
            raise
        finally:
            self._region = before
        if region is None:
            return compiled
        self._try("dynamo", region.traced)
        if region.lowered:
            return compiled
        for stage in ("pre", "post"):
            self._unavailable(stage, WITHOUT_ATEN.format(region.backend))
        return self._watched(compiled, Executable(region.base, region.hash))

    def _begin(self, seen: DynamoGraph) -> CapturedRegion:
        signature = signature_of(seen, self._names.by_identity())
        phase = "optimizer" if "/torch/optim/" in seen.file.replace("\\", "/") else "forward"
        parts = read_graph(seen.graph, Reading(phase, self._script, {}, dynamo_bindings(seen.graph, signature)))
        region = CapturedRegion(lambda: self._folder.reserve(phase), signature, seen.backend, parts.hash, phase)
        reason = f"graph break: {seen.break_reason}, {seen.break_line}" if seen.break_reason else ""

        def write() -> None:
            self._captured = True
            self._counts["dynamo"] += 1
            if reason:
                self._counts["breaks"] += 1
            number = f"dynamo graph {self._counts['dynamo']} of step {self._folder.step}"
            notes = tuple(note for note in (number, reason) if note)
            self._folder.write(self._graph(region.base, "dynamo", phase, parts, notes))

        region.write_dynamo = write
        return region

    # aten

    def _around_aot(self, phase: str, compiler: AotCompiler) -> AotCompiler:
        region = self._region
        if region is None:
            return compiler
        region.lowered = True

        def compile_(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
            pre = self._try("pre", lambda: self._pre(region, module.graph, phase))
            self._unavailable("post", WITHOUT_KERNELS.format(region.backend))
            with self._inside.entered():
                compiled = compiler(module, example_inputs)
            return compiled if pre is None else self._watched(compiled, pre.executable)

        return compile_

    def _around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        region = self._regions.get(seen.key) if seen.phase == "backward" else self._region
        if region is None:
            with self._inside.entered():
                return compile_()
        region.lowered = True
        self._regions[seen.key] = region
        graph = seen.module.graph
        pre = self._try("pre", lambda: self._pre(region, graph, seen.phase))
        before = self._try("post", lambda: GraphBefore(graph))
        outer, self._lowered = self._lowered, None
        began = time.perf_counter()
        try:
            with self._inside.entered():
                compiled = compile_()
            seconds = time.perf_counter() - began
            lowered = self._lowered
        finally:
            self._lowered = outer
        if pre is None:
            return compiled
        name = f"{pre.executable.base}-post"
        if before is not None and lowered is not None:

            def write_post() -> None:
                final = read_graph(lowered.graph, Reading(pre.graph.phase, self._script, {}, {}))
                code = generated_module(compiled)
                covered = before.covered_by(lowered.graph)
                done = Compilation(pre.graph, pre.outputs, lowered, final, covered, code, seconds)
                self._folder.write(post_graph(done, name))

            self._try("post", write_post)
        elif before is not None and not pre.graph.nodes:
            empty = replace(pre.graph, name=name, stage="post", pre=pre.graph.name, seconds=seconds)
            empty = replace(empty, notes=("nothing to compute: its outputs are its inputs",))
            self._try("post", lambda: self._folder.write(empty))
        elif before is not None:
            self._unavailable("post", "numdrift could not see the code that Inductor generated for a graph")
        if is_compiled_by_inductor(compiled):
            self._executables[id(compiled)] = pre.executable
            # Once `compiled` is freed, another object may get its id, so the entry is removed together with it.
            weakref.finalize(compiled, self._executables.pop, id(compiled), None)
            return compiled
        return self._watched(compiled, pre.executable)

    def _pre(self, region: CapturedRegion, graph: torch.fx.Graph, side: str) -> PreGraph:
        region.traced()
        self._counts["compiled"] += 1
        phase = "backward" if side == "backward" else region.phase
        bindings = AotBindings(region.signature, side).of(graph)
        parts = read_graph(graph, Reading(phase, self._script, region.modules, bindings))
        if side == "forward":
            region.modules.update(modules_by_sequence(parts.nodes))
        base = self._folder.reserve("backward") if side == "backward" else region.base
        made = self._graph(base, "pre", phase, parts)
        self._folder.write(made)
        return PreGraph(made, parts.outputs, Executable(base, made.hash))

    def _graph(self, base: str, stage: str, phase: str, parts: GraphParts, notes: tuple[str, ...] = ()) -> Graph:
        return Graph(
            name=f"{base}-{stage}",
            mode=self._folder.mode,
            stage=stage,
            phase=phase,
            step=self._folder.step,
            nodes=parts.nodes,
            values=parts.values,
            inputs=parts.inputs,
            outputs=tuple(output for output in parts.outputs if output is not None),
            hash=parts.hash,
            notes=notes,
        )

    # kernels

    def _generated(self, lowered: Lowered) -> None:
        self._lowered = lowered

    # executions

    def _around_execution(self, compiled: Any, execute: Compile) -> Any:
        executable = self._executables.get(id(compiled))
        if executable is not None:
            self._try("executions", lambda: self._executed(executable))
        with self._inside.entered():
            return execute()

    def _watched(self, compiled: Any, executable: Executable) -> Any:
        """Return a function that calls `compiled` and records each execution."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self._try("executions", lambda: self._executed(executable))
            with self._inside.entered():
                return compiled(*args, **kwargs)

        return called_like(compiled, run)

    def _executed(self, executable: Executable) -> None:
        first, executable.ran = not executable.ran, True
        if not self._watching:
            return
        self._counts["executed"] += 1
        if not first:
            self._counts["cached"] += 1
        if self._folder.step in self._steps:
            self._folder.executed(executable.base, executable.hash)

    # A failure of the capture stops neither the compilation nor the training.

    def _try(self, stage: str, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:  # noqa: BLE001, the compilation continues whatever fails here
            self._failed(stage, error)
            return None

    def _failed(self, stage: str, error: Exception) -> None:
        what = error if isinstance(error, NotAvailable) else f"{type(error).__name__}: {error}"
        text = str(what).strip().splitlines()[0]
        self._unavailable(stage, f"not available on torch {torch.__version__}: {text}")

    def _unavailable(self, stage: str, reason: str) -> None:
        if stage not in self._reported:
            self._reported.add(stage)
            try:
                self._folder.unavailable(stage, reason)
            except OSError:
                return


class Depth:
    """The number of `entered` contexts that this thread is in. The object is true if the number is not zero."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def __bool__(self) -> bool:
        return getattr(self._thread, "depth", 0) > 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

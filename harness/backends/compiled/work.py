"""The work of torch.compile: compilations, executed graphs, graph breaks, and the use of torch's own kernels."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import NotAvailable
from ...records.tools.backend_work import BREAK, Work
from ...tape.origin import short_place
from ...torch_private.compiler.graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    called_like,
    is_compiled_by_inductor,
    watch_aot,
    watch_dynamo,
    watch_executions,
    watch_inductor,
)
from ...torch_private.compiler.inductor_lowering import LoweredNode, watch_lowering
from ...torch_private.patches import Patches, Undo
from ...torch_private.profiling.compile_work import (
    compiler_counters,
    graph_breaks,
    is_backward,
    kernels_of_torch,
    recompile_reason,
    watch_compilations,
)
from ..called_operators import KeptFailure, line_in
from .graph_lines import GraphLines

HITS = ("inductor.fxgraph_cache_hit", "aot_autograd.autograd_cache_hit")
MISS = "inductor.fxgraph_cache_miss"


@dataclass(slots=True)
class RunningCompilation:
    """A compilation that is running.

    captured: the number of nodes in dynamo's graphs.
    lowered: the number of nodes in the graphs of AOTAutograd or Inductor.
    left: the kernels that the compiler leaves to torch.
    """

    name: str
    began: float
    counted: dict[str, int]
    call: str
    cause: str = ""
    captured: int = 0
    lowered: int = 0
    left: list[Work] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.lowered or self.captured


class CompiledWork:
    """The observer of the compiler's work. From `__enter__` to `__exit__`, it calls `report` with each `Work`."""

    def __init__(self, script: str, report: Callable[[Work], None]) -> None:
        self._script = script
        self._report = report
        self._running: RunningCompilation | None = None
        self._names: dict[int, tuple[str, int | None]] = {}
        self._executables = 0
        self._breaks = len(graph_breaks())
        self._lowered = False
        self._lines: GraphLines | None = None
        self._kept = KeptFailure()
        self._patches = Patches("the work of the compiler")
        self._watching = False

    def __enter__(self) -> Callable[[], None]:
        self._watching = True
        self._patches.also(watch_compilations(self._began, self._ended))
        hooks: list[tuple[Callable[..., Undo], Callable[..., Any]]] = [
            (watch_dynamo, self._around_dynamo),
            (watch_aot, self._around_aot),
            (watch_inductor, self._around_inductor),
            (watch_executions, self._around_execution),
            (
                lambda seen: watch_lowering(seen, lambda node, error: None, lambda: None),
                self._node_lowered,
            ),
        ]
        for watch, around in hooks:
            try:
                self._patches.also(watch(around))
            except NotAvailable:
                continue  # then only the figures of this hook are missing
        return self._kept.tell

    def __exit__(self, *raised: object) -> None:
        self._patches.undo()
        self._watching = False

    def _began(self, number: str, backward: bool) -> None:
        with self._kept:
            self._running = RunningCompilation(
                f"graph {number}{' backward' if backward else ''}",
                time.perf_counter(),
                dict(compiler_counters()),
                line_in(self._script),
            )
            if not backward:
                with suppress(NotAvailable):  # the compilation is then reported without its reason
                    self._running.cause = recompile_reason()

    def _ended(self) -> None:
        running, self._running = self._running, None
        with self._kept:
            if running is not None:
                seconds = time.perf_counter() - running.began
                breaks = graph_breaks()
                new, self._breaks = breaks[self._breaks :], len(breaks)
                if running.size or new:
                    # `cached` is True if all graphs came from a cache, None if no cache was consulted.
                    now = compiler_counters()
                    hits = any(now.get(name, 0) > running.counted.get(name, 0) for name in HITS)
                    missed = now.get(MISS, 0) > running.counted.get(MISS, 0)
                    cached = False if missed else hits or None
                    call, cause = running.call, running.cause
                    self._report(Work("compile", running.name, seconds, running.size, cached, call, cause))
                for work in running.left:
                    self._report(work)
                for broken in new:
                    where = short_place(broken.source)
                    self._report(Work("fallback", f"{BREAK}: {broken.reason}", None, None, None, where))

    def _around_dynamo(self, seen: DynamoGraph, compile_: Compile) -> Any:
        with self._kept:
            if self._running is not None:
                self._running.captured += operations_in(seen.graph)
        outer, self._lowered = self._lowered, seen.backend == "inductor"
        try:
            compiled = compile_()
            return compiled if self._lowered else self._timed(compiled, seen.graph, "")
        finally:
            self._lowered = outer

    def _around_aot(self, phase: str, compiler: AotCompiler) -> AotCompiler:
        self._lowered = True

        def compile_(module: Any, example_inputs: Any) -> Any:
            with self._kept:
                if self._running is not None:
                    self._running.lowered += operations_in(module.graph)
            return self._timed(compiler(module, example_inputs), module.graph, f" {phase}")

        return compile_

    def _around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        graph, lines = seen.module.graph, GraphLines()
        with self._kept:
            size = operations_in(graph)
            lines = GraphLines.of(graph, self._script)
        outer, self._lines = self._lines, lines
        try:
            compiled = compile_()
        finally:
            self._lines = outer
        if not is_compiled_by_inductor(compiled):
            return self._timed(compiled, graph, f" {seen.phase}")
        with self._kept:
            self._name(compiled, f" {seen.phase}", size)
            if self._running is not None:
                self._running.lowered += size
                for op, call in lines.called(kernels_of_torch(compiled)):
                    self._running.left.append(Work("fallback", op, None, None, None, call))
        return compiled

    def _node_lowered(self, lowered: LoweredNode) -> None:
        with self._kept:
            if self._lines is not None:
                self._lines.seen(lowered, self._script)

    def _around_execution(self, compiled: Any, execute: Compile) -> Any:
        named = self._names.get(id(compiled))
        with self._kept:
            if named is None:  # it comes from AOTAutograd's cache; this process has not compiled it
                for op in kernels_of_torch(compiled):
                    self._report(Work("fallback", op))
                named = self._name(compiled, " backward" if is_backward(compiled) else " forward", None)
        name, size = named or ("graph", None)
        return self._execute(name, size, execute)

    def _name(self, compiled: Any, phase: str, size: int | None) -> tuple[str, int | None]:
        named = self._names[id(compiled)] = (f"graph {self._executables}{phase}", size)
        self._executables += 1
        # Once `compiled` is freed, another object may get its id, so the name is removed together with it.
        weakref.finalize(compiled, self._names.pop, id(compiled), None)
        return named

    def _timed(self, compiled: Any, graph: Any, phase: str) -> Any:
        name, size = f"graph {self._executables}{phase}", operations_in(graph)
        self._executables += 1

        def run(*args: Any, **kwargs: Any) -> Any:
            return self._execute(name, size, lambda: compiled(*args, **kwargs))

        return called_like(compiled, run)

    def _execute(self, name: str, size: int | None, execute: Compile) -> Any:
        if not self._watching:
            return execute()
        began = time.perf_counter()
        outputs = execute()
        seconds = time.perf_counter() - began
        with self._kept:
            self._report(Work("execute", name, seconds, size, None, line_in(self._script)))
        return outputs


def operations_in(graph: Any) -> int:
    """Return the number of nodes in a graph that compute a value."""
    return sum(node.op.startswith("call_") for node in graph.nodes)

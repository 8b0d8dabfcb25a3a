"""The work of torch.compile: compilations, executed graphs, graph breaks, and kernels that it leaves to torch."""

from __future__ import annotations

import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from ...errors import NotAvailable
from ...records.tools.backend_work import BREAK, Work
from ...torch_private.compiler.graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    called_like,
    is_compiled_by_inductor,
    parts_of_op,
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
from ..called_operators import KeptFailure, line_in, line_in_trace

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
    """The observer of the compiler's work. It calls `report` with each piece, from `__enter__` to `__exit__`."""

    def __init__(self, script: str, report: Callable[[Work], None]) -> None:
        self._script = script
        self._told = report
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
                continue  # only the figures of this hook are missing then
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
                    self._told(Work("compile", running.name, seconds, running.size, cached, call, cause))
                for work in running.left:
                    self._told(work)
                for broken in new:
                    where = broken.source.replace("\\", "/").rpartition("/")[2]
                    self._told(Work("fallback", f"{BREAK}: {broken.reason}", None, None, None, where))

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
                    self._told(Work("fallback", op))
                named = self._name(compiled, " backward" if is_backward(compiled) else " forward", None)
        name, size = named or ("graph", None)
        return self._execute(name, size, execute)

    def _name(self, compiled: Any, phase: str, size: int | None) -> tuple[str, int | None]:
        named = self._names[id(compiled)] = (f"graph {self._executables}{phase}", size)
        self._executables += 1
        # Another object may get this id once the object is freed, so the name is removed with it.
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
            self._told(Work("execute", name, seconds, size, None, line_in(self._script)))
        return outputs


def operations_in(graph: Any) -> int:
    """Return the number of nodes in a graph that compute a value."""
    return sum(node.op.startswith("call_") for node in graph.nodes)


# The script's lines for the kernels of torch that an Inductor graph calls.

SCATTERS = "aten.scatter"
"""The prefix of a family of ops.

Inductor may call the kernel of another op of the family, such as `aten.scatter_reduce_` for `aten.scatter_add`.
"""

INDEX_PUTS = ("aten._unsafe_index_put", "aten._index_put_impl")
"""Ops for which Inductor may call the kernel of `aten.index_put_`."""


@dataclass(slots=True)
class GraphLines:
    """The lines of one graph's nodes that may call a kernel of torch, by the name of the kernel or op.

    lowered: the lines of nodes that Inductor was observed to lower to a call of that kernel.
    complex_: the lines of nodes with complex values, for which Inductor generates no code.
    present: the lines of all nodes.

    A graph from Inductor's cache is not lowered. A kernel is then attributed to a complex node of its op, else to any
    node of its op. `complex_` and `present` list the line of each node twice: by the op with its overload, and by the
    op without it.
    """

    lowered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    complex_: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    present: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, graph: torch.fx.Graph, script: str) -> GraphLines:
        lines = cls()
        for node in graph.nodes:
            # A node whose effects are ordered calls its op as `with_effects(token, op, ...)`.
            effects = parts_of_op(node.target) is None and len(node.args) > 1
            inner = node.args[1] if effects else None
            op = str(node.target if parts_of_op(inner) is None else inner)
            values: list[Any] = [operand.meta.get("val") for operand in (node, *node.all_input_nodes)]
            is_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)
            line = line_in_trace(script, node.meta.get("stack_trace"))
            for name in {_plain(op), _family(op)}:
                lines.present[name].append(line)
                if is_complex:
                    lines.complex_[name].append(line)
        return lines

    def seen(self, lowered: LoweredNode, script: str) -> None:
        """Record a node that Inductor has lowered."""
        line = line_in_trace(script, lowered.node.meta.get("stack_trace"))
        self.lowered[_plain(lowered.extern)].append(line)

    def called(self, kernels: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield each of these kernels, such as `aten::sort.stable`, with its line, "" if it is unknown."""
        for kernel, count in Counter(kernels).items():
            name = _plain(kernel.replace("::", "."))
            candidates = [self.lowered.get(name, [])]
            candidates += [
                lines_by_op.get(op_name, [])
                for lines_by_op in (self.complex_, self.present)
                for op_name in (name, _family(name))
            ]
            chosen: Sequence[str] = [""] * count
            for lines in candidates:
                # The kernels belong to these nodes if there are as many nodes as kernels, or more nodes that all have
                # the same line. Otherwise the node of a kernel is unknown.
                if lines and all(lines) and (len(lines) == count or (len(lines) > count and len(set(lines)) == 1)):
                    chosen = lines[:count]
                    break
            for line in chosen:
                yield kernel, line


def _family(name: str) -> str:
    """Return `aten.sort` for `aten.sort.stable`, since Inductor may choose another overload or the in-place op."""
    packet = ".".join(name.split(".")[:2]).removesuffix("_")
    if packet.startswith(SCATTERS):
        return SCATTERS
    return "aten.index_put" if packet in INDEX_PUTS else packet


def _plain(op: str) -> str:
    return op.removeprefix("torch.ops.").removesuffix(".default")

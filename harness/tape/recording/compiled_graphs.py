"""Record the graphs that compilers receive during a run, and pass each execution of a graph to an executor."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...torch_private.compiler.graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    called_like,
    is_compiled_by_inductor,
)
from ...torch_private.compiler.probing import (
    Boxed,
    compile_again,
    copied_graph,
    undescribed_graph,
    watch_compiled_graphs,
)
from ...torch_private.patches import Patches
from .probed_graph import ProbedGraph, Probes, ReadingTime, Recompile
from .step_recorder import CompilingAgain


def unreported(number: int, backward: bool) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGraph:
    """A graph of aten ops as its compiler received it.

    region: the number of the graph that dynamo captured; the graph's forward and backward have the same number
    probed: the same graph with probes, None when the backend executes the graph op by op
    """

    region: int
    phase: str
    module: torch.fx.GraphModule
    probed: ProbedGraph | None = None

    @property
    def name(self) -> str:
        return f"{self.region} {self.phase}"


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """A graph as dynamo captured it, before any compiler changes it: it calls torch's functions, not aten ops."""

    module: torch.fx.GraphModule


class Executor(Protocol):
    """An observer through which compiled graphs are executed."""

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Call `execute`, which executes the code compiled from a whole captured graph, and return its result."""

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Call `execute`, which executes the code compiled from a graph, and return its result."""


class CompiledGraphs:
    """The graphs that are compiled between `install` and `remove`. If an `executor` is set, it executes them.

    With `op_by_op`, the backend executes its graphs as eager ops, one by one. Otherwise each graph is also compiled
    with probes, within `compiling_again(number, is_backward)`. Graphs are numbered in the order of their compilation.
    With `quick`, the values of a graph are read only if that takes little time.
    """

    def __init__(self, *, op_by_op: bool, compiling_again: CompilingAgain = unreported, quick: bool = False) -> None:
        self.executor: Executor | None = None
        self._op_by_op = op_by_op
        self._compiled_again = compiling_again
        self._compiled = itertools.count(1)
        self._patches = Patches("the tape of compiled graphs")
        self._graphs: dict[int, CompiledGraph] = {}
        self._regions: dict[int, int] = {}
        self._numbers = itertools.count()
        self._captured: list[int | None] = []
        self._probes: Probes | None = None
        self._reading = ReadingTime(quick=quick)

    def install(self) -> None:
        """Install the hooks. Raises NotAvailable, and then leaves no hook installed."""
        probes = Probes()
        try:
            self._patches.also(watch_compiled_graphs(self))
        except Exception:
            probes.close()
            raise
        self._probes = probes

    def remove(self) -> None:
        self.executor = None
        self._patches.undo()
        self._graphs.clear()
        if self._probes is not None:
            self._probes.close()
            self._probes = None

    def around_dynamo(self, seen: DynamoGraph, compile_: Compile) -> Any:
        graph: CapturedGraph | None = None
        with suppress(Exception):  # on failure, the code is compiled anyway; its executions have no captured graph
            graph = CapturedGraph(undescribed_graph(seen.graph))  # copied now: compilers change the graph
        self._captured.append(None)
        try:
            compiled = compile_()
        finally:
            self._captured.pop()
        if graph is None:
            return compiled

        def call(*args: Any) -> Any:
            executor = self.executor
            if executor is None:
                return compiled(*args)
            return executor.captured(graph, args, lambda: compiled(*args))

        return called_like(compiled, call)

    def _region(self) -> int:
        """Return the number of the region that dynamo is compiling, or a new number outside of dynamo."""
        current = self._captured[-1] if self._captured else None
        number = next(self._numbers) if current is None else current
        if self._captured:
            self._captured[-1] = number
        return number

    def _probed(self, module: torch.fx.GraphModule, phase: str, again: Recompile, probes: Probes) -> ProbedGraph:
        number = next(self._compiled)

        def compile_reported(copy: torch.fx.GraphModule) -> Boxed:
            with self._compiled_again(number, phase == "backward"):
                return again(copy)

        return ProbedGraph(module, compile_reported, probes, self._reading)

    def around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        if seen.key is None or self._probes is None:
            return compile_()
        # A backward is compiled at its first execution, when dynamo has finished capturing the region. The key connects
        # the backward with its forward.
        forward_region = self._regions.get(seen.key) if seen.phase == "backward" else None
        region = self._regions[seen.key] = self._region() if forward_region is None else forward_region
        copied = copied_graph(seen.module)
        graph = CompiledGraph(
            region,
            seen.phase,
            copied,
            self._probed(copied, seen.phase, functools.partial(compile_again, seen), self._probes),
        )
        with self._reading.compiling():
            compiled = compile_()
        if is_compiled_by_inductor(compiled):
            self._graphs[id(compiled)] = graph
            # The entry is removed together with the object, since another object may then get the same id.
            weakref.finalize(compiled, self._graphs.pop, id(compiled), None)
        return compiled

    def around_call(self, compiled: Any, inputs: Sequence[Any], execute: Compile) -> Any:
        graph, executor = self._graphs.get(id(compiled)), self.executor
        if graph is None or executor is None:
            return execute()
        return executor.executed(graph, inputs, execute)

    def around_aot(self, phase: str, compiler: AotCompiler) -> AotCompiler:
        region = self._region()

        def compile_(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
            def again(copy: torch.fx.GraphModule) -> Boxed:
                """Compile a copy of the graph with the backend, and return a function that takes one list of inputs."""
                with torch.no_grad():
                    made: Boxed = compiler(copy, example_inputs)
                return made if getattr(made, "_boxed_call", False) else lambda inputs: made(*inputs)

            # Keep a copy, since the compiler may edit the graph.
            copied = copied_graph(module)
            probed = None
            if not self._op_by_op and self._probes is not None:
                probed = self._probed(copied, phase, again, self._probes)
            graph = CompiledGraph(region, phase, copied, probed)
            with self._reading.compiling():
                compiled = compiler(module, example_inputs)

            def run(*args: Any) -> Any:
                executor = self.executor
                if executor is None:
                    return compiled(*args)
                # AOT autograd calls a boxed function with one list, so that the function can free its inputs. Any other
                # function is called with the inputs themselves.
                boxed = len(args) == 1 and isinstance(args[0], list)
                return executor.executed(graph, args[0] if boxed else args, lambda: compiled(*args))

            return called_like(compiled, run)

        return compile_

"""The graphs that compilers are given during a run, remembered, and their executions led to who takes them apart."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .. import torch_private
from .compiled_probes import ProbedGraph, Probes
from .tape import Phase


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGraph:
    """A graph of aten ops as it went into its compiler.

    `region` numbers what dynamo captured: its forward and its backward share it. `probed` is the same with probes, None
    where the backend executes the graph op by op.
    """

    region: int
    phase: str
    module: torch.fx.GraphModule
    probed: ProbedGraph | None = None

    @property
    def name(self) -> str:
        return f"{self.region} {self.phase}"


class Executor(Protocol):
    """Has compiled graphs executed."""

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Execute what was compiled from a graph, by `execute`, and give what that gives."""


class Unrolled(Protocol):
    """One execution of a compiled graph that is being taken apart."""

    def probe(self, outputs: Sequence[Any]) -> None:
        """Read the values of the execution, which gave `outputs`, from its repetitions. Fails for itself alone."""

    def leave(self, outputs: Sequence[Any]) -> None:
        """Note what the execution did on the tape. Raises NotReplayable."""


class Unroller(Protocol):
    """Takes the executions of compiled graphs within one step apart, onto the tape of that step."""

    def enter(self, graph: CompiledGraph, phase: Phase, inputs: Sequence[Any]) -> Unrolled:
        """Note what a graph is about to be executed with."""


class CompiledGraphs:
    """Remembers each graph from `install` to `remove`; while there is an `executor`, it has the graphs executed.

    `op_by_op`: the backend executes its graphs by eager ops, one by one. Any other one is given them with probes, too.
    """

    def __init__(self, *, op_by_op: bool) -> None:
        self.executor: Executor | None = None
        self._op_by_op = op_by_op
        self._patches = torch_private.Patches("the tape of compiled graphs")
        self._graphs: dict[int, CompiledGraph] = {}
        self._regions: dict[int, int] = {}
        self._numbers = itertools.count()
        self._captured: list[int | None] = []
        self._probes: Probes | None = None

    def install(self) -> None:
        """Put the hooks in. Raises NotAvailable, and then none is left."""
        probes = Probes()
        try:
            self._patches.also(torch_private.watch_compiled_graphs(self))
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

    def around_dynamo(self, seen: torch_private.DynamoGraph, compile_: torch_private.Compile) -> Any:
        self._captured.append(None)
        try:
            return compile_()
        finally:
            self._captured.pop()

    def _region(self) -> int:
        """The number of what dynamo is having compiled, or a new one outside of that."""
        known = self._captured[-1] if self._captured else None
        number = next(self._numbers) if known is None else known
        if self._captured:
            self._captured[-1] = number
        return number

    def around_inductor(self, seen: torch_private.InnerCompilation, compile_: torch_private.Compile) -> Any:
        if seen.key is None or self._probes is None:
            return compile_()
        known = self._regions.get(seen.key) if seen.phase == "backward" else None
        region = self._regions[seen.key] = self._region() if known is None else known
        copied = torch_private.copied_graph(seen.module)
        graph = CompiledGraph(region, seen.phase, copied, ProbedGraph(copied, seen.again, self._probes))
        compiled = compile_()
        if torch_private.is_compiled_by_inductor(compiled):
            self._graphs[id(compiled)] = graph
            weakref.finalize(compiled, self._graphs.pop, id(compiled), None)
        return compiled

    def around_call(self, compiled: Any, inputs: Sequence[Any], execute: torch_private.Compile) -> Any:
        graph, executor = self._graphs.get(id(compiled)), self.executor
        if graph is None or executor is None:
            return execute()
        return executor.executed(graph, inputs, execute)

    def around_aot(self, phase: str, compiler: torch_private.AotCompiler) -> torch_private.AotCompiler:
        region = self._region()

        def compile_(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
            copied = torch_private.copied_graph(module)
            probed = None
            if not self._op_by_op and self._probes is not None:
                again = functools.partial(_compiled_again, compiler, example_inputs)
                probed = ProbedGraph(copied, again, self._probes)
            graph = CompiledGraph(region, phase, copied, probed)
            compiled = compiler(module, example_inputs)

            def run(*args: Any) -> Any:
                executor = self.executor
                if executor is None:
                    return compiled(*args)
                boxed = len(args) == 1 and isinstance(args[0], list)
                return executor.executed(graph, args[0] if boxed else args, lambda: compiled(*args))

            return torch_private.called_like(compiled, run)

        return compile_


def _compiled_again(
    compiler: torch_private.AotCompiler, example_inputs: Any, module: torch.fx.GraphModule
) -> torch_private.Boxed:
    """What a backend's compiler makes of a graph, taking its inputs in one list."""
    with torch.no_grad():
        compiled: torch_private.Boxed = compiler(module, example_inputs)
    if getattr(compiled, "_boxed_call", False):
        return compiled

    def boxed(inputs: list[Any]) -> Any:
        return compiled(*inputs)

    return boxed

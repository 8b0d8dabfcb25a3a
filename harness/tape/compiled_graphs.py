"""Remembers the graphs that compilers are given during a run, and leads each execution to who takes it apart."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..torch_private.graph_stages import AotCompiler, Compile, DynamoGraph, called_like, is_compiled_by_inductor
from ..torch_private.patches import Patches
from ..torch_private.probing import Boxed, InnerCompilation, copied_graph, undescribed_graph, watch_compiled_graphs
from .probed_graph import ProbedGraph, Probes, ReadingTime, Recompile
from .random_calls import RandomCalls
from .tape import Phase

ToldAgain = Callable[[int, bool], AbstractContextManager[None]]
"""Around the compilation of a graph with probes: of its number, and whether it is a backward."""


def told_to_nobody(number: int, backward: bool) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGraph:
    """A graph of aten ops as it went into its compiler.

    `region` numbers what dynamo captured: its forward and its backward share it. `probed` is the same with
    probes, None where the backend executes the graph op by op.
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
    """A graph as dynamo captured it, before any compiler has changed it: torch's own calls, no aten ops yet."""

    module: torch.fx.GraphModule


class Executor(Protocol):
    """Has compiled graphs executed."""

    def captured(self, graph: CapturedGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Execute what was compiled from all of a captured graph, by `execute`, and give what that gives."""

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        """Execute what was compiled from a graph, by `execute`, and give what that gives."""


class Unrolled(Protocol):
    """One execution of a compiled graph that is being taken apart."""

    def probe(self, outputs: Sequence[Any]) -> None:
        """Read the values of the execution, which gave `outputs`, from its repetitions. Fails for itself alone."""

    def leave(self, outputs: Sequence[Any], random: RandomCalls) -> None:
        """Note what the execution did on the tape; `random` are its random calls. Raises NotReplayable."""


class Unroller(Protocol):
    """Takes the executions of compiled graphs within one step apart, onto the tape of that step."""

    def called(self, graph: CapturedGraph, inputs: Sequence[Any], *, grad: bool) -> None:
        """Note that a captured graph is about to be called: what is executed until it returns belongs to it."""

    def returned(self, outputs: Any) -> None:
        """Note what the graph that was called last has given."""

    def enter(self, graph: CompiledGraph, phase: Phase, inputs: Sequence[Any]) -> Unrolled:
        """Note what a graph is about to be executed with."""


class CompiledGraphs:
    """Remembers each graph from `install` to `remove`; while there is an `executor`, it has the graphs executed.

    `op_by_op`: the backend executes its graphs by eager ops, one by one. Any other one is given them with probes, too:
    then each graph is compiled within `told_again(number, is_backward)`, its number in the order of their compilation.
    """

    def __init__(self, *, op_by_op: bool, told_again: ToldAgain = told_to_nobody) -> None:
        self.executor: Executor | None = None
        self._op_by_op = op_by_op
        self._told_again = told_again
        self._compiled = itertools.count(1)
        self._patches = Patches("the tape of compiled graphs")
        self._graphs: dict[int, CompiledGraph] = {}
        self._regions: dict[int, int] = {}
        self._numbers = itertools.count()
        self._captured: list[int | None] = []
        self._probes: Probes | None = None
        self._reading = ReadingTime()

    def install(self) -> None:
        """Put the hooks in. Raises NotAvailable, and then none is left."""
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
        with suppress(Exception):  # the compilation goes on; what is executed of it belongs to no captured graph then
            graph = CapturedGraph(undescribed_graph(seen.graph))  # now, for compilers change what they are given
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
        """The number of what dynamo is having compiled, or a new one outside of that."""
        known = self._captured[-1] if self._captured else None
        number = next(self._numbers) if known is None else known
        if self._captured:
            self._captured[-1] = number
        return number

    def _probed(self, module: torch.fx.GraphModule, phase: str, again: Recompile, probes: Probes) -> ProbedGraph:
        number = next(self._compiled)

        def told(copy: torch.fx.GraphModule) -> Boxed:
            with self._told_again(number, phase == "backward"):
                return again(copy)

        return ProbedGraph(module, told, probes, self._reading)

    def around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        if seen.key is None or self._probes is None:
            return compile_()
        # A backward is compiled later, at its first execution, outside of what dynamo was capturing: the key
        # ties it to its forward.
        known = self._regions.get(seen.key) if seen.phase == "backward" else None
        region = self._regions[seen.key] = self._region() if known is None else known
        copied = copied_graph(seen.module)
        graph = CompiledGraph(region, seen.phase, copied, self._probed(copied, seen.phase, seen.again, self._probes))
        with self._reading.compiling():
            compiled = compile_()
        if is_compiled_by_inductor(compiled):
            self._graphs[id(compiled)] = graph
            # An id is given to another object once this one is gone, so the entry goes with it.
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
                """What the backend makes of a copy of the graph, taking its inputs in one list."""
                with torch.no_grad():
                    made: Boxed = compiler(copy, example_inputs)
                return made if getattr(made, "_boxed_call", False) else lambda inputs: made(*inputs)

            # The compiler may edit what it is given.
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
                # AOT autograd calls what is boxed with one list, so that inputs can be freed within, anything
                # else with the inputs.
                boxed = len(args) == 1 and isinstance(args[0], list)
                return executor.executed(graph, args[0] if boxed else args, lambda: compiled(*args))

            return called_like(compiled, run)

        return compile_

"""Remembers the graphs that compilers are given during a run, and leads each execution to who takes it apart."""

from __future__ import annotations

import itertools
import operator
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..errors import NotAvailable
from ..torch_private.dispatching import is_operation_overload
from ..torch_private.graph_stages import AotCompiler, Compile, DynamoGraph, called_like, is_compiled_by_inductor
from ..torch_private.operators import returns_view, written_names
from ..torch_private.patches import Patches
from ..torch_private.probing import (
    Boxed,
    InnerCompilation,
    ProbeOp,
    copied_graph,
    undescribed_graph,
    watch_compiled_graphs,
)
from ..torch_private.shown_buffers import showing_buffers
from .random_calls import RandomCalls
from .tape import Phase

# A compiled graph with probes: the same graph compiled once more, showing what each of its nodes gives.

ValueKey = tuple[str, int]
"""A value of a graph: the name of the node that gives it, and its number among what that gives."""

MOST_COMPILATIONS = 16
"""So often one graph is compiled to find which values can be read; finding one that cannot takes about seven times."""

Recompile = Callable[[torch.fx.GraphModule], Boxed]

ToldAgain = Callable[[int, bool], AbstractContextManager[None]]
"""Around the compilation of a graph with probes: of its number, and whether it is a backward."""


def told_to_nobody(number: int, backward: bool) -> AbstractContextManager[None]:
    return nullcontext()


class Probes:
    """The op that reads values, from here to `close`."""

    def __init__(self) -> None:
        self._op = ProbeOp(self._saw)
        self._seen: dict[int, torch.Tensor] = {}

    def insert(self, module: torch.fx.GraphModule, wanted: Collection[ValueKey]) -> list[ValueKey]:
        """Probe these values of a graph; gives what the numbers of the probes stand for."""
        keys: list[ValueKey] = []
        for node, key in computed_values(module.graph):
            if key in wanted:
                self._op.insert_after(node, len(keys))
                keys.append(key)
        module.recompile()
        return keys

    def of_buffers(self, number_of: Callable[[str], int | None]) -> AbstractContextManager[None]:
        """Within the context what is compiled shows the buffers that its code writes, by the numbers of their nodes."""
        return showing_buffers(self._op, number_of)

    def seen(self, run: Callable[[], Any]) -> tuple[Any, dict[int, torch.Tensor]]:
        """What `run` gives, and what its probes show."""
        self._seen = {}
        try:
            return run(), self._seen
        finally:
            self._seen = {}

    def close(self) -> None:
        self._op.close()

    def _saw(self, index: int, value: torch.Tensor) -> None:
        self._seen[index] = value.detach().clone()


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """A compilation that shows the values `keys`, in this order."""

    keys: Sequence[ValueKey]
    compiled: Boxed


class RepeatableExecution(Protocol):
    """An execution that can be repeated."""

    def repeated(self, compiled: Boxed) -> bool:
        """Execute this on the same inputs; says whether every result has the same bits."""


READING_FACTOR, READING_LEAST = 2.0, 10.0
"""On an accelerator values of compiled graphs are read for so many times as long as the graphs took to be compiled, and
at least for so many seconds: a graph with a probe at every node is another graph, of many more kernels."""


class ReadingTime:
    """The time in which the values of compiled graphs may be read; without a limit on the CPU."""

    def __init__(self) -> None:
        self.compiled = 0.0
        self.spent = 0.0

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """The graph itself is compiled here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.compiled += time.perf_counter() - began

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Its values are read here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent += time.perf_counter() - began

    @property
    def limit(self) -> float:
        """Seconds."""
        return max(READING_LEAST, READING_FACTOR * self.compiled)

    @property
    def is_over(self) -> bool:
        return self.spent >= self.limit


class ProbedGraph:
    """Reads the values of one graph. Where reading one changes the results, that one is found by halving, and left out.

    What was compiled is kept for the next execution.
    """

    unread = 0
    """How many values were not tried to be read, because the time for that was over."""

    def __init__(self, module: torch.fx.GraphModule, again: Recompile, probes: Probes, reading: ReadingTime) -> None:
        self.reading = reading
        self._module = module
        self._again = again
        self._probes = probes
        self._keys = [key for _, key in computed_values(module.graph)]
        self._plan: list[Probed] = []
        self._left_out: set[ValueKey] = set()
        self._compilations = MOST_COMPILATIONS
        devices = {
            value.device.type
            for node in module.graph.nodes
            for value in [node.meta.get("val")]
            if isinstance(value, torch.Tensor)
        }
        self._limited = bool(devices - {"cpu"})
        self._buffered: Probed | None = None

    def values(self, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor]:
        """The values that could be read without changing the results. Raises what a compiler raises."""
        with self.reading.reading():
            found = self._buffers(repetition) if self._limited else {}
            for probed in self._plan:
                found |= self._read(probed, repetition) or {}
        # Compile with ever fewer probes until the results are what they were: of [a b c d] with c to blame [a b] is
        # read, then [c] fails and is left out, then [a b d] is read.
        while len(found.keys() | self._left_out) < len(self._keys) and self._may_go_on():
            suspects = [key for key in self._keys if key not in self._left_out]
            values = self._tried(suspects, repetition)
            if values is not None:
                return found | values
            # Compiled once more without any probe it gives other bits: no probe is to blame, so none is looked for.
            if not self._left_out and self._may_go_on() and self._tried([], repetition) is None:
                self._compilations = 0
            while len(suspects) > 1 and self._may_go_on():
                half = suspects[: len(suspects) // 2]
                values = self._tried(half, repetition)
                found |= values or {}
                suspects = half if values is None else suspects[len(half) :]
            if len(suspects) == 1:
                self._left_out.add(suspects[0])
        over = self._limited and self.reading.is_over
        self.unread = len(set(self._keys) - found.keys() - self._left_out) if over else 0
        return found

    def _may_go_on(self) -> bool:
        return self._compilations > 0 and not (self._limited and self.reading.is_over)

    def _buffers(self, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor]:
        """What the graph's own code writes into memory, read without another fusion; nothing where that is not to be
        had. It costs one compilation, whose kernels are those that there are."""
        if self._buffered is None:
            self._buffered = Probed(self._keys, lambda inputs: None)
            with suppress(NotAvailable):
                numbers = {key: number for number, key in enumerate(self._keys)}
                nodes = {node.name: numbers[key] for node, key in computed_values(self._module.graph)}
                with self._probes.of_buffers(nodes.get):
                    self._buffered = Probed(self._keys, self._again(copied_graph(self._module)))
        values = self._read(self._buffered, repetition) or {}
        recorded = {key: node.meta["val"] for node, key in computed_values(self._module.graph)}
        return {
            key: value
            for key, value in values.items()
            if (value.shape, value.dtype) == (recorded[key].shape, recorded[key].dtype)
        }

    def _tried(self, keys: Sequence[ValueKey], repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor] | None:
        self._compilations = max(0, self._compilations - 1)
        with self.reading.reading():
            copied = copied_graph(self._module)
            probed = Probed(self._probes.insert(copied, frozenset(keys)), self._again(copied))
            values = self._read(probed, repetition)
        if values:
            self._plan = [each for each in self._plan if not set(each.keys) <= set(keys)] + [probed]
        return values

    def _read(self, probed: Probed, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor] | None:
        same, seen = self._probes.seen(lambda: repetition.repeated(probed.compiled))
        return {probed.keys[index]: value for index, value in seen.items()} if same else None


def computed_values(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, ValueKey]]:
    """The tensors that ops of a graph compute, with the nodes that stand for them."""
    found = [(node, value_key(node)) for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    return [(node, key) for node, key in found if key is not None]


def value_key(node: torch.fx.Node) -> ValueKey | None:
    """The value that a node computes, None for one that computes none: an input, a view, a copy into an input."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source, index = node.args
        if not isinstance(source, torch.fx.Node) or not isinstance(index, int):
            return None
        computed = source.target is not operator.getitem and value_key(source) is not None
        return (source.name, index) if computed else None
    if not is_operation_overload(node.target):
        return None
    if returns_view(node.target) or written_names(node.target):
        return None
    return node.name, 0


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

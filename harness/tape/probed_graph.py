"""The values of a compiled graph, read by compiling it once more with probes that show what each of its nodes gives."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..errors import NotAvailable
from ..torch_private.dispatching import is_operation_overload
from ..torch_private.operators import returns_view, written_names
from ..torch_private.probing import Boxed, ProbeOp, copied_graph
from ..torch_private.shown_buffers import showing_buffers

ValueKey = tuple[str, int]
"""A value of a graph: the name of the node that gives it, and its number among what that gives."""

FUSED = "it is fused into the kernels of others, and written nowhere"

MOST_COMPILATIONS = 16
"""So often one graph is compiled to find which values can be read; finding one that cannot takes about seven times."""

Recompile = Callable[[torch.fx.GraphModule], Boxed]


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
        # On an accelerator all values of a graph may take several times the memory of the training.
        self._seen[index] = value.detach().clone() if value.device.type == "cpu" else value.detach().cpu()


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """A compilation that shows the values `keys`, in this order."""

    keys: Sequence[ValueKey]
    compiled: Boxed


class RepeatableExecution(Protocol):
    """An execution that can be repeated."""

    def repeated(self, compiled: Boxed) -> bool:
        """Execute this on the same inputs; says whether every result has the same bits."""


MOST_PROBED = 64
"""Values of a graph for an accelerator that are read by probes where its own code shows what it writes into memory.
Seen on an H200: of ten graphs of 70 to 533 nodes none had the same results with a probe at every other node within ten
seconds; two smaller ones had."""

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

    unread = ""
    """Why some values were not tried to be read; empty where all were."""

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
        if found and len(self._keys) > MOST_PROBED:
            self.unread = FUSED if found.keys() < set(self._keys) else ""
            return found
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
        over = self._limited and self.reading.is_over and set(self._keys) - found.keys() - self._left_out
        self.unread = f"the {self.reading.limit:.0f} s in which values are read were over" if over else ""
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

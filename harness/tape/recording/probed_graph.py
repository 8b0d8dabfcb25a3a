"""The values in a compiled graph, read by compiling the graph again with probes that show the results of its nodes."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...errors import NotAvailable
from ...torch_private.compiler.probing import Boxed, ProbeOp, copied_graph
from ...torch_private.compiler.shown_buffers import showing_buffers
from ...torch_private.dispatching import is_operation_overload
from ...torch_private.operators import returns_view, written_names

ValueKey = tuple[str, int]
"""A value in a graph: the name of the node that computes it, and its index among the node's results."""

FUSED = "it is fused into the kernels of other values, and never written to memory"

MOST_COMPILATIONS = 16
"""The largest number of times that one graph is compiled in search of the values that can be read. Finding one value
that cannot be read takes about seven compilations."""

Recompile = Callable[[torch.fx.GraphModule], Boxed]


class Probes:
    """The op that reads values; it exists until `close`."""

    def __init__(self) -> None:
        self._op = ProbeOp(self._saw)
        self._seen: dict[int, torch.Tensor] = {}

    def insert(self, module: torch.fx.GraphModule, wanted: Collection[ValueKey]) -> list[ValueKey]:
        """Insert probes for the wanted values into a graph, and return the keys of the values by probe number."""
        keys: list[ValueKey] = []
        for node, key in computed_values(module.graph):
            if key in wanted:
                self._op.insert_after(node, len(keys))
                keys.append(key)
        module.recompile()
        return keys

    def seen(self, run: Callable[[], Any]) -> tuple[Any, dict[int, torch.Tensor]]:
        """Return the result of `run`, and the values that its probes show, by probe number."""
        self._seen = {}
        try:
            return run(), self._seen
        finally:
            self._seen = {}

    def close(self) -> None:
        self._op.close()

    def _saw(self, index: int, value: torch.Tensor) -> None:
        # The values of a graph together may need several times the training's memory, too much for an accelerator.
        self._seen[index] = value.detach().clone() if value.device.type == "cpu" else value.detach().cpu()


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """A compiled graph with probes. `keys` are the keys of the values that the probes show, by probe number."""

    keys: Sequence[ValueKey]
    compiled: Boxed


class RepeatableExecution(Protocol):
    """An execution that can be repeated."""

    def repeated(self, compiled: Boxed) -> bool:
        """Execute the compiled graph on the same inputs, and return whether it repeats all results bit for bit."""


MOST_PROBED, MOST_PROBED_ON_CPU = 64, 256
"""A graph with more values than this gets no probes if its own code already shows its buffers.

In ten seconds on an H200, none of ten graphs of 70 to 533 nodes had the same results with a probe at every second node
as without probes. Two smaller graphs had the same results. On two cores of a CPU, the backward of a ResNet-18 has 373
values: showing its 109 buffers took one compilation of 11 s, and 16 compilations with probes found 34 of the values in
634 s.
"""

READING_FACTOR, READING_LEAST = 2.0, 10.0
"""The time limit for reading the values of an accelerator's graphs: READING_FACTOR times their compilation time, but at
least READING_LEAST seconds. A graph with a probe at every node has many more kernels than the graph without probes."""

MOST_AT_ONCE, QUICK_SECONDS = 300, 10.0
"""The largest number of values in a graph, and the time in seconds, for which a `quick` reading is attempted. On two
cores, one cold compilation of a graph of 370 values with a probe at every value took 33 s."""


class PutOff(Exception):
    """Reading the values of a graph would take too long for a `quick` reading."""


class ReadingTime:
    """The time spent on reading the values of compiled graphs, and its limit. The limit does not apply on the CPU.

    A `quick` reading is given up, by PutOff, if it takes longer than QUICK_SECONDS on any device.
    """

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self.compiled = 0.0
        self.spent = 0.0

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count the time in the context as the compilation of a graph without probes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.compiled += time.perf_counter() - began

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the time in the context as reading of values."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent += time.perf_counter() - began

    def require(self, seconds: float) -> None:
        """Raise PutOff if a quick reading has no such time left, or if graphs without probes took longer to compile."""
        if self.quick and max(self.compiled, self.spent + seconds) > QUICK_SECONDS:
            raise PutOff

    @property
    def limit(self) -> float:
        """The time that may be spent on reading values, in seconds."""
        if self.quick:
            return QUICK_SECONDS
        return max(READING_LEAST, READING_FACTOR * self.compiled)

    @property
    def is_over(self) -> bool:
        return self.spent >= self.limit


class ProbedGraph:
    """A reader of the values of one graph.

    It reads the values with a probe at each, or those that the graph's own code writes to memory. It then bisects the
    rest to find the values whose probes change the results, and reads all others. It keeps the compiled graphs for the
    next execution.
    """

    unread = ""
    """The reason why some values were not tried, "" if all values were tried."""

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
        self._longest = 0.0  # seconds of the longest compilation

    @property
    def count(self) -> int:
        """The number of values in the graph."""
        return len(self._keys)

    @property
    def is_put_off(self) -> bool:
        """True if the graph is too large for the quick reading that is asked for."""
        return self.reading.quick and self.count > MOST_AT_ONCE

    def values(self, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor]:
        """Return the values that can be read without changing the results.

        Raises the compiler's errors, and PutOff if a quick reading would take too long.
        """
        is_large = len(self._keys) > (MOST_PROBED if self._limited else MOST_PROBED_ON_CPU)
        changed: Sequence[ValueKey] | None = None  # values whose probes change the results
        if not self._limited and not is_large and self._buffered is None:
            # On the CPU, most small graphs have the same results with all probes, and need no other compilation.
            values = self._read(self._plan[0], repetition) if self._plan else self._tried(self._keys, repetition)
            if values is not None:
                return values
            changed = self._keys
        with self.reading.reading():
            shown = self._buffers(repetition)
            if shown and is_large:
                self.unread = FUSED if shown.keys() < set(self._keys) else ""
                return shown
            # If even a compilation without probes computes different bits, the probes are not the reason: stop looking.
            if shown is None:
                self._compilations = 0
            read_values = shown or {}
            for probed in self._plan:
                read_values |= self._read(probed, repetition) or {}
        # Compile with fewer and fewer probes until the results are the same as without probes. If a probe at c of
        # [a b c d] changes the results, [a b] is read, then [c] fails and is left out, then [a b d] is read.
        while len(read_values.keys() | self._left_out) < len(self._keys) and self._may_go_on():
            suspects = [key for key in self._keys if key not in self._left_out and key not in read_values]
            values = None if suspects == changed else self._tried(suspects, repetition)
            if values is not None:
                return read_values | values
            while len(suspects) > 1 and self._may_go_on():
                half = suspects[: len(suspects) // 2]
                values = self._tried(half, repetition)
                read_values |= values or {}
                suspects = half if values is None else suspects[len(half) :]
            if len(suspects) == 1:
                self._left_out.add(suspects[0])
        over = self._limited and self.reading.is_over and set(self._keys) - read_values.keys() - self._left_out
        if over and self.reading.quick:
            raise PutOff
        self.unread = f"the limit of {self.reading.limit:.0f} s for reading values was reached" if over else ""
        return read_values

    def _may_go_on(self) -> bool:
        return self._compilations > 0 and not (self._limited and self.reading.is_over)

    def _buffers(self, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor] | None:
        """Return the values that the graph's own code writes to memory, an empty dict if the code shows none.

        Reading these values does not change the fusion. It costs one compilation, which produces the same kernels as
        the original compilation. Return None if that compilation computes different results.
        """
        if self._buffered is None:
            self.reading.require(self._longest)
            numbers = {key: number for number, key in enumerate(self._keys)}
            nodes = {node.name: numbers[key] for node, key in computed_values(self._module.graph)}
            with ExitStack() as shown:
                with suppress(NotAvailable):  # without these hooks, the code shows no buffer
                    shown.enter_context(showing_buffers(nodes.get))
                self._buffered = Probed(self._keys, self._again(copied_graph(self._module)))
        values = self._read(self._buffered, repetition)
        if values is None:
            return None
        recorded = {key: node.meta["val"] for node, key in computed_values(self._module.graph)}
        return {
            key: value
            for key, value in values.items()
            if (value.shape, value.dtype) == (recorded[key].shape, recorded[key].dtype)
        }

    def _tried(self, keys: Sequence[ValueKey], repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor] | None:
        self._compilations = max(0, self._compilations - 1)
        self.reading.require(self._longest)
        with self.reading.reading():
            copied, began = copied_graph(self._module), time.perf_counter()
            probed = Probed(self._probes.insert(copied, frozenset(keys)), self._again(copied))
            self._longest = max(self._longest, time.perf_counter() - began)
            values = self._read(probed, repetition)
        if values:
            self._plan = [planned for planned in self._plan if not set(planned.keys) <= set(keys)] + [probed]
        return values

    def _read(self, probed: Probed, repetition: RepeatableExecution) -> dict[ValueKey, torch.Tensor] | None:
        same, shown = self._probes.seen(lambda: repetition.repeated(probed.compiled))
        return {probed.keys[index]: value for index, value in shown.items()} if same else None


def computed_values(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, ValueKey]]:
    """Return the nodes that represent the tensors computed by a graph's ops, each with the key of its tensor."""
    pairs = [(node, value_key(node)) for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    return [(node, key) for node, key in pairs if key is not None]


def value_key(node: torch.fx.Node) -> ValueKey | None:
    """Return the key of the value that a node computes; None for an input, a view, or a copy into an input."""
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

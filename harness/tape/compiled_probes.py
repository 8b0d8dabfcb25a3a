"""A compiled graph with probes: the same graph compiled once more, showing what each of its nodes gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .. import torch_private

ValueKey = tuple[str, int]
"""A value of a graph: the name of the node that gives it, and its number among what that gives."""

MOST_COMPILATIONS = 16
"""So often one graph is compiled to find which values can be read; finding one that cannot takes about seven times."""

Recompile = Callable[[torch.fx.GraphModule], torch_private.Boxed]


class Probes:
    """The op that reads values, from here to `close`."""

    def __init__(self) -> None:
        self._op = torch_private.ProbeOp(self._saw)
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
    compiled: torch_private.Boxed


class Repetition(Protocol):
    """An execution that can be repeated."""

    def repeated(self, compiled: torch_private.Boxed) -> bool:
        """Execute this on the same inputs; says whether every result has the same bits."""


class ProbedGraph:
    """Reads the values of one graph. Where reading one changes the results, that one is found by halving, and left out.

    What was compiled is kept for the next execution.
    """

    def __init__(self, module: torch.fx.GraphModule, again: Recompile, probes: Probes) -> None:
        self._module = module
        self._again = again
        self._probes = probes
        self._keys = [key for _, key in computed_values(module.graph)]
        self._plan: list[Probed] = []
        self._left_out: set[ValueKey] = set()
        self._compilations = MOST_COMPILATIONS

    def values(self, repetition: Repetition) -> dict[ValueKey, torch.Tensor]:
        """The values that could be read without changing the results. Raises what a compiler raises."""
        found: dict[ValueKey, torch.Tensor] = {}
        for probed in self._plan:
            found |= self._read(probed, repetition) or {}
        if len(found) + len(self._left_out) < len(self._keys) and self._compilations:
            found |= self._search(repetition)
        return found

    def _search(self, repetition: Repetition) -> dict[ValueKey, torch.Tensor]:
        """Compile with ever fewer probes until the results are what they were."""
        found: dict[ValueKey, torch.Tensor] = {}
        while self._compilations:
            suspects = [key for key in self._keys if key not in self._left_out]
            values = self._tried(suspects, repetition)
            if values is not None:
                return found | values
            if not self._left_out and self._tried([], repetition) is None:
                self._compilations = 0
            while len(suspects) > 1 and self._compilations:
                half = suspects[: len(suspects) // 2]
                values = self._tried(half, repetition)
                found |= values or {}
                suspects = half if values is None else suspects[len(half) :]
            if len(suspects) == 1:
                self._left_out.add(suspects[0])
        return found

    def _tried(self, keys: Sequence[ValueKey], repetition: Repetition) -> dict[ValueKey, torch.Tensor] | None:
        self._compilations = max(0, self._compilations - 1)
        copied = torch_private.copied_graph(self._module)
        probed = Probed(self._probes.insert(copied, frozenset(keys)), self._again(copied))
        values = self._read(probed, repetition)
        if values:
            self._plan = [one for one in self._plan if not set(one.keys) <= set(keys)] + [probed]
        return values

    def _read(self, probed: Probed, repetition: Repetition) -> dict[ValueKey, torch.Tensor] | None:
        same, seen = self._probes.seen(lambda: repetition.repeated(probed.compiled))
        return {probed.keys[index]: value for index, value in seen.items()} if same else None


def computed_values(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, ValueKey]]:
    """The tensors that ops of a graph compute, with the nodes that stand for them."""
    found = [
        (node, value_key(node)) for node in graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    ]
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
    if not torch_private.is_operation_overload(node.target):
        return None
    if torch_private.returns_view(node.target) or torch_private.written_names(node.target):
        return None
    return node.name, 0

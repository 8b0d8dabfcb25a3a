"""The operators of an aten graph, as they were written, and whether a backend has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch.fx

from ...backends.called_operators import ScriptLines
from ...backends.compiled.fx_graph import module_path
from ...backends.one_node import Unanswerable, configuration_of, identity_of
from ...hooks.backend_adapter import Adapter
from ...records.backend_work import SupportAnswer
from ...records.partition_record import operator_name
from ...torch_private.composite_ops import is_operator
from ...torch_private.partitioner import call_of, without_modes


class Support:
    """Asks a backend of each operator, once for each configuration."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._known: dict[object, SupportAnswer] = {}

    def of(self, node: torch.fx.Node) -> SupportAnswer:
        if not is_operator(node.target):
            return SupportAnswer(f"{node.target} is no operator that a backend is asked about", "partitioner")
        try:
            identity = identity_of(node)
            if identity not in self._known:
                with without_modes():
                    self._known[identity] = self._adapter.supports(node)
            return self._known[identity]
        except Unanswerable as error:
            return SupportAnswer(str(error), "partitioner")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as it was written, with the aten nodes that it is dispatched to; or one aten node by
    itself, where it comes from no call, or from one that is several operators."""

    kind: str
    nodes: tuple[torch.fx.Node, ...]
    configuration: str
    call: str
    module: str
    """The path of the module that calls it; the outermost is ""."""
    verdict: SupportAnswer
    names: frozenset[str]
    """What it may be called in `ops_to_partition`: as it was written, and as it is dispatched."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call of a captured graph as operators: one, or several, as of an indexing; with the arguments of the
    last."""

    kinds: tuple[str, ...]
    configuration: str

    @property
    def is_one(self) -> bool:
        return len(self.kinds) == 1


Written = Mapping[int, WrittenCall]
"""The operators of each call of a captured graph, by the call's number."""


def written_operators(graph: torch.fx.Graph) -> Written:
    """The operators of a graph of ops as they were written, by the calls that they come from."""
    found: dict[int, WrittenCall] = {}
    for node in graph.nodes:
        number = call_of(node)
        if number is not None and node.op == "call_function" and is_operator(node.target):
            before = found[number].kinds if number in found else ()
            found[number] = WrittenCall((*before, kind_of(node)), _configuration(node))
    return found


def operators_of(graph: torch.fx.Graph, written: Written, support: Support, lines: ScriptLines) -> Iterator[Operator]:
    """The operators of an aten graph in its order. A backward is told none that are written."""
    for number, nodes in _by_call(graph, written):
        verdicts = [(node, support.of(node)) for node in nodes]
        decisive, verdict = next((one for one in verdicts if not one[1].supported), verdicts[-1])
        own = tuple(map(kind_of, nodes))
        call = WrittenCall(own, _configuration(decisive)) if number is None else written[number]
        yield Operator(
            call.kinds[0],
            tuple(nodes),
            call.configuration,
            lines.of_stack(decisive.meta.get("stack_trace") or ""),
            _module(decisive),
            verdict,
            frozenset((*call.kinds, *own)),
        )


def origin_names(node: torch.fx.Node, written: Written) -> tuple[str, ...]:
    """The operators that a node of a backward is the gradient of, as they were written."""
    number = call_of(node)
    call = None if number is None else written.get(number)
    return () if call is None else call.kinds


def _by_call(graph: torch.fx.Graph, written: Written) -> list[tuple[int | None, Sequence[torch.fx.Node]]]:
    """The nodes of each call that is one operator as it was written, and every other node by itself."""
    found: dict[object, tuple[int | None, list[torch.fx.Node]]] = {}
    for node in graph.nodes:
        if not computes(node):
            continue
        number = call_of(node)
        call = None if number is None else written.get(number)
        known = number if call is not None and call.is_one else None
        found.setdefault(node if known is None else known, (known, []))[1].append(node)
    return list(found.values())


def computes(node: torch.fx.Node) -> bool:
    """Whether a node is an operator, and does not only take one's result apart."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") != "_operator"


def kind_of(node: torch.fx.Node) -> str:
    """`aten::sum` of a node that calls `aten.sum.dim_IntList`."""
    name = node.target.name() if is_operator(node.target) else str(node.target)  # type: ignore[union-attr]
    return operator_name(name)


def _module(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    return module_path(stack) if stack else ""


def _configuration(node: torch.fx.Node) -> str:
    try:
        return configuration_of(node)
    except Unanswerable as error:
        return str(error)

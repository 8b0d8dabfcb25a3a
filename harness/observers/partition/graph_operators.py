"""The operators of an aten graph as the script wrote them, and whether a backend supports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch.fx

from ...hooks.backend_adapter import Adapter
from ...hooks.node_kinds import TensorKind, Unanswerable
from ...records.tools.backend_work import SupportAnswer
from ...records.tools.partition_record import operator_name
from ...script.script_lines import ScriptLines
from ...tape.node_origin import module_path
from ...torch_private.compiler.composite_ops import is_operator
from ...torch_private.compiler.partitioner import call_of, without_modes


class Support:
    """Asks a backend whether it supports an operator, once for each configuration of the operator."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._answers: dict[object, SupportAnswer] = {}

    def of(self, node: torch.fx.Node) -> SupportAnswer:
        if not is_operator(node.target):
            return SupportAnswer(f"{node.target} is not an operator", "partitioner")
        try:
            identity = _identity(node)
            if identity not in self._answers:
                # While dynamo and AOT partition, their modes are active. Leave these before asking the backend.
                with without_modes():
                    self._answers[identity] = self._adapter.supports(node)
            return self._answers[identity]
        except Unanswerable as error:
            return SupportAnswer(str(error), "partitioner")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as the script wrote it, with the aten nodes that it is dispatched to.

    A node that comes from no call, or from a call that consists of several operators, is an operator of its own.
    """

    kind: str
    nodes: tuple[torch.fx.Node, ...]
    configuration: str
    call: str
    module: str
    """Path of the module that calls the operator; "" for the outermost module."""
    verdict: SupportAnswer
    names: frozenset[str]
    """Names that `ops_to_partition` may use for the operator: as written, and as dispatched."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The operators of one call in a captured graph, with the configuration of the last one.

    A call is one operator, or several, as in indexing.
    """

    kinds: tuple[str, ...]
    configuration: str


Written = Mapping[int, WrittenCall]
"""The operators of each call of a captured graph, by the call's number."""


def written_operators(graph: torch.fx.Graph) -> Written:
    """Return the operators of a graph of ops as the script wrote them, by the numbers of their calls."""
    calls: dict[int, WrittenCall] = {}
    for node in graph.nodes:
        number = call_of(node)
        if number is not None and node.op == "call_function" and is_operator(node.target):
            before = calls[number].kinds if number in calls else ()
            calls[number] = WrittenCall((*before, _kind(node)), _configuration(node))
    return calls


def operators_of(graph: torch.fx.Graph, written: Written, support: Support, lines: ScriptLines) -> Iterator[Operator]:
    """Yield the operators of an aten graph in order. For a backward, `written` is empty."""
    # Nodes of a call that was written as one operator are grouped under the call's number; every other node is
    # a group of its own. A node that only selects from a result (getitem) is not an operator.
    groups: dict[object, tuple[WrittenCall | None, list[torch.fx.Node]]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or getattr(node.target, "__module__", "") == "_operator":
            continue
        number = call_of(node)
        call = None if number is None else written.get(number)
        is_one = call is not None and len(call.kinds) == 1
        groups.setdefault(number if is_one else node, (call if is_one else None, []))[1].append(node)
    for call, nodes in groups.values():
        # A call is supported if all of its nodes are. The first unsupported node supplies the reason and the line.
        verdicts = [(node, support.of(node)) for node in nodes]
        decisive, verdict = next((pair for pair in verdicts if not pair[1].supported), verdicts[-1])
        own = tuple(map(_kind, nodes))
        call = call or WrittenCall(own, _configuration(decisive))
        stack = decisive.meta.get("nn_module_stack")
        yield Operator(
            call.kinds[0],
            tuple(nodes),
            call.configuration,
            lines.of_stack(decisive.meta.get("stack_trace") or ""),
            module_path(stack) if stack else "",
            verdict,
            frozenset((*call.kinds, *own)),
        )


def _kind(node: torch.fx.Node) -> str:
    """Return the name of a node's operator: `aten::sum` for a node that calls `aten.sum.dim_IntList`."""
    name = node.target.name() if is_operator(node.target) else str(node.target)  # type: ignore[union-attr]
    return operator_name(name)


def _configuration(node: torch.fx.Node) -> str:
    """Return a node's arguments as text, with each tensor as its dtype and shape: `float32[32, 10], 1, False`.

    If a tensor has no static shape, return the reason instead.
    """

    def shown(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            fake = value.meta.get("val")
            return str(TensorKind.of(fake)) if isinstance(fake, torch.Tensor) else value.name
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(shown, value))}]"
        return str(value).removeprefix("torch.")

    try:
        return ", ".join([*map(shown, node.args), *(f"{name}={shown(value)}" for name, value in node.kwargs.items())])
    except Unanswerable as error:
        return str(error)


def _identity(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return a key: if two nodes have the same key, a backend supports both or neither.

    Raise Unanswerable for a tensor without a static shape.
    """

    def kind(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            fake = value.meta.get("val")
            return TensorKind.of(fake) if isinstance(fake, torch.Tensor) else None
        if isinstance(value, (list, tuple)):
            return tuple(map(kind, value))
        return (type(value), str(value))

    named = tuple(sorted((name, kind(value)) for name, value in node.kwargs.items()))
    return (str(node.target), tuple(map(kind, node.args)), named)

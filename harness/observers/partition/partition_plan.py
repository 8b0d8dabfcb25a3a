"""Which nodes of an aten graph run where, and whether that keeps to the limits."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch.fx

from ...backends.called_operators import ScriptLines
from ...errors import PartitionError
from ...records.partition_record import (
    CPU,
    UNLIMITED,
    GraphPartition,
    PartitionConfig,
    PartitionedOperator,
    Phase,
    SubgraphRow,
)
from ...torch_private.composite_ops import is_operator
from ...torch_private.operators import returns_view
from ...torch_private.partitioner import call_of, fuse
from ...torch_private.probing import copied_graph
from .graph_operators import Operator, Support, Written, operators_of, origin_names
from .partition_parts import Part, PartCall

PLACE, OPERATOR = "numdrift_place", "numdrift_operator"
"""What a node knows while its graph is fused: where it runs, and of which operator it is the node that
computes."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a graph is partitioned for: `module` is the class that it was captured of, `device` the backend's
    name.

    With `only`, everything but these calls goes to the CPU.
    """

    graph: int
    module: str
    device: str
    written: Written
    config: PartitionConfig
    lines: ScriptLines
    only: frozenset[Part] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A copy of the graph whose operators are in submodules; `placed` says where each runs, in the order of
    execution, and `calls` what was called where, of the operators that come from a call."""

    module: torch.fx.GraphModule
    placed: Sequence[tuple[str, str]]
    partition: GraphPartition
    calls: Mapping[Part, PartCall]


def plan_graph(module: torch.fx.GraphModule, phase: Phase, support: Support, request: Request) -> Plan:
    """Partition one aten graph, whatever the limits say."""
    graph = copied_graph(module)
    forward = phase == "forward"
    operators = list(operators_of(graph.graph, request.written if forward else {}, support, request.lines))
    moved = {one: _is_moved(one, request, forward) for one in operators}
    device = {one: CPU if moved[one] or not one.verdict.supported else request.device for one in operators}
    subgraphs = _subgraphs(graph, operators, device, request.device)
    partition = GraphPartition(
        request.graph,
        phase,
        request.module,
        forward and bool(request.written),
        tuple(_rows(operators, device, moved)),
        tuple(row for _, row in subgraphs),
    )
    calls = {part: PartCall(one.kind, one.call, one.module) for one in operators for part in _parts(one, request)}
    return Plan(graph, [(name, row.device) for name, row in subgraphs], partition, calls)


def check(partition: GraphPartition, config: PartitionConfig) -> None:
    """Raise PartitionError where a partition breaks a limit."""
    where = "" if partition.phase == "forward" else " in the backward"
    fraction = partition.percentage / 100
    if fraction < config.min_operator_percentage_threshold:
        raise PartitionError(
            f"The partitioner has found {partition.percentage:.2f}% of operators ({partition.supported} of "
            f"{partition.total}){where} to be supported, which is below the specified min operator "
            f"percentage threshold "
            f"of {100 * config.min_operator_percentage_threshold:.2f}%.",
            "min_operator_percentage_threshold",
            fraction,
            config.min_operator_percentage_threshold,
        )
    count = len(partition.subgraphs)
    if config.max_subgraph_count != UNLIMITED and count > config.max_subgraph_count:
        raise PartitionError(
            f"The partitioner has found {count} subgraphs{where} which exceeds the specified max subgraph count of "
            f"{config.max_subgraph_count}.",
            "max_subgraph_count",
            count,
            config.max_subgraph_count,
        )
    smallest = min((row.size for row in partition.subgraphs), default=config.min_subgraph_size)
    if config.min_subgraph_size != UNLIMITED and smallest < config.min_subgraph_size:
        raise PartitionError(
            f"The partitioner has found a subgraph of {smallest} "
            f"operator{'s' * (smallest != 1)}{where} which is below the "
            f"specified min subgraph size of {config.min_subgraph_size}.",
            "min_subgraph_size",
            smallest,
            config.min_subgraph_size,
        )


def _is_moved(one: Operator, request: Request, forward: bool) -> bool:
    """Whether an operator goes to the CPU whatever the backend says of it."""
    if request.only is not None and request.only.isdisjoint(_parts(one, request)):
        return True
    return not _names(one, request.written, forward).isdisjoint(request.config.moved)


def _parts(one: Operator, request: Request) -> set[Part]:
    numbers = {call_of(node) for node in one.nodes}
    return {(request.graph, number) for number in numbers if number is not None}


def _names(one: Operator, written: Written, forward: bool) -> frozenset[str]:
    """What an operator is called; a gradient also as the operator that it belongs to."""
    return one.names if forward else one.names | set(origin_names(one.nodes[0], written))


def _subgraphs(
    graph: torch.fx.GraphModule, operators: Sequence[Operator], device: dict[Operator, str], backend: str
) -> list[tuple[str, SubgraphRow]]:
    """Fuse the graph in place: first what the backend gets, then the rest; the submodules in the order of
    execution."""
    for number, one in enumerate(operators):
        for node in one.nodes:
            node.meta |= {PLACE: device[one]}
        _computing(one.nodes).meta[OPERATOR] = number
    for node in graph.graph.nodes:  # what takes a result apart is where the result is
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            node.meta |= {PLACE: node.args[0].meta.get(PLACE)}
    inside = fuse(graph, lambda node: node.meta.get(PLACE) == backend, "backend_")
    inside |= fuse(graph, lambda node: node.meta.get(PLACE) == CPU, "cpu_")
    graph.recompile()
    counted = {name: _counted(nodes, operators) for name, nodes in inside.items()}
    order = [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]
    return [
        (
            name,
            SubgraphRow(number, backend if name.startswith("backend_") else CPU, counted[name]),
        )
        for number, name in enumerate(order, 1)
    ]


def _computing(nodes: Sequence[torch.fx.Node]) -> torch.fx.Node:
    """The last of an operator's nodes that is no view: what is kept for the backward is detached, often
    elsewhere."""
    values = [one for one in nodes if is_operator(one.target) and not returns_view(one.target)]
    return (values or nodes)[-1]


def _counted(nodes: Sequence[torch.fx.Node], operators: Sequence[Operator]) -> dict[str, int]:
    """The operators in a subgraph, by kind. One that lies in two is in that of the node that computes it."""
    numbers = [node.meta[OPERATOR] for node in nodes if OPERATOR in node.meta]
    return dict(Counter(operators[number].kind for number in numbers))


def _rows(
    operators: Iterable[Operator], device: dict[Operator, str], moved: dict[Operator, bool]
) -> list[PartitionedOperator]:
    counts: Counter[tuple[str, str, str, str, str, str, bool]] = Counter()
    for one in operators:
        why = one.verdict
        counts[(one.kind, one.configuration, one.call, device[one], why.reason, why.failure_at, moved[one])] += 1
    return [
        PartitionedOperator(kind, configuration, call, count, place, reason, at, named)
        for (kind, configuration, call, place, reason, at, named), count in counts.items()
    ]

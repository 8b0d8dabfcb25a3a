"""Decides where each node of an aten graph runs, and checks the limits."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.fx

from ...errors import PartitionError
from ...records.tools.partition_record import (
    CPU,
    UNLIMITED,
    GraphPartition,
    PartitionConfig,
    PartitionedOperator,
    Phase,
    SubgraphRow,
)
from ...script.script_lines import ScriptLines
from ...torch_private.compiler.composite_ops import is_operator
from ...torch_private.compiler.partitioner import call_of, fuse
from ...torch_private.compiler.probing import copied_graph
from ...torch_private.operators import returns_view
from .graph_operators import Operator, Support, Written, operators_of
from .partition_journal import Part, PartCall

PLACE, OPERATOR = "numdrift_place", "numdrift_operator"
"""Keys of a node's metadata while its graph is being fused: where the node runs, and the operator it belongs to."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to partition one graph.

    module: class of the captured module
    device: name of the backend
    only: the only calls that run on the backend; everything else runs on the CPU
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
    """A copy of a graph, with its operators in submodules.

    placed: where each submodule runs, in the order of execution
    calls: each part that comes from a call, with that call
    """

    module: torch.fx.GraphModule
    placed: Sequence[tuple[str, str]]
    partition: GraphPartition
    calls: Mapping[Part, PartCall]


def plan_graph(module: torch.fx.GraphModule, phase: Phase, support: Support, request: Request) -> Plan:
    """Partition one aten graph, even if that breaks the limits."""
    graph = copied_graph(module)
    forward = phase == "forward"
    operators = list(operators_of(graph.graph, request.written if forward else {}, support, request.lines))
    device: dict[Operator, str] = {}
    calls: dict[Part, PartCall] = {}
    counts: Counter[tuple[str, str, str, str, str, str, bool]] = Counter()
    for entry in operators:
        numbers = {call_of(node) for node in entry.nodes}
        parts = {(request.graph, number) for number in numbers if number is not None}
        # The configuration may name a gradient itself, or the operator whose gradient it is.
        names = set(entry.names)
        origin = None if forward else call_of(entry.nodes[0])
        if origin is not None and origin in request.written:
            names.update(request.written[origin].kinds)
        moved = not names.isdisjoint(request.config.moved)
        moved = moved or (request.only is not None and request.only.isdisjoint(parts))
        why = entry.verdict
        device[entry] = CPU if moved or not why.supported else request.device
        counts[entry.kind, entry.configuration, entry.call, device[entry], why.reason, why.failure_at, moved] += 1
        calls |= dict.fromkeys(parts, PartCall(entry.kind, entry.call, entry.module))
    subgraphs = _fused(graph, operators, device, request.device)
    rows = tuple(
        PartitionedOperator(kind, configuration, call, count, place, reason, at, moved)
        for (kind, configuration, call, place, reason, at, moved), count in counts.items()
    )
    partition = GraphPartition(
        request.graph,
        phase,
        request.module,
        forward and bool(request.written),
        rows,
        tuple(row for _, row in subgraphs),
    )
    return Plan(graph, [(name, row.device) for name, row in subgraphs], partition, calls)


def check(partition: GraphPartition, config: PartitionConfig) -> None:
    """Raise PartitionError if a partition breaks a limit."""
    where = "" if partition.phase == "forward" else " in the backward"
    fraction = partition.percentage / 100
    if fraction < config.min_operator_percentage_threshold:
        raise PartitionError(
            f"The partitioner has found {partition.percentage:.2f}% of operators ({partition.supported} of "
            f"{partition.total}){where} to be supported, which is below the specified min "
            "operator percentage threshold "
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


def _fused(
    graph: torch.fx.GraphModule, operators: Sequence[Operator], device: dict[Operator, str], backend: str
) -> list[tuple[str, SubgraphRow]]:
    """Fuse the graph in place: first the backend's nodes, then the others.

    Return the submodules in order of execution.
    """
    for number, entry in enumerate(operators):
        for node in entry.nodes:
            node.meta |= {PLACE: device[entry]}
        # An operator that spans two subgraphs counts in the subgraph of the node that computes it: its last node that
        # is not a view. Values that are kept for the backward are detached, often in another subgraph.
        values = [node for node in entry.nodes if is_operator(node.target) and not returns_view(node.target)]
        (values or entry.nodes)[-1].meta[OPERATOR] = number
    for node in graph.graph.nodes:  # a getitem runs where the result that it reads is computed
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            node.meta |= {PLACE: node.args[0].meta.get(PLACE)}
    # The nodes fused first are the least constrained and form the fewest subgraphs, so the backend's come first.
    inside = fuse(graph, lambda node: node.meta.get(PLACE) == backend, "backend_")
    inside |= fuse(graph, lambda node: node.meta.get(PLACE) == CPU, "cpu_")
    graph.recompile()
    rows = []
    order = [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]
    for number, name in enumerate(order, 1):
        kinds = Counter(operators[node.meta[OPERATOR]].kind for node in inside[name] if OPERATOR in node.meta)
        rows.append((name, SubgraphRow(number, backend if name.startswith("backend_") else CPU, dict(kinds))))
    return rows

"""A backend of torch.compile that partitions graphs between a mode's backend and the CPU."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.fx

from ...errors import NotAvailable, PartitionError
from ...hooks.backend_adapter import Adapter
from ...hooks.node_kinds import extent_of
from ...records.tools.partition_record import CPU, GraphPartition, PartitionConfig, Partitioning
from ...script.script_lines import ScriptLines
from ...torch_private.compiler.partitioner import Phase, compile_with_autograd, mark_calls, written_graph
from .graph_operators import Support, written_operators
from .partition_journal import Part, PartCall
from .partition_plan import Plan, Request, check, plan_graph

logger = logging.getLogger("numdrift.partition")


def log_graph(partition: GraphPartition) -> None:
    """Log, at INFO, the supported and the unsupported operators, and every subgraph with its operators."""
    if not logger.isEnabledFor(logging.INFO):
        return
    lines = [
        f"Graph {partition.graph} of {partition.module}, {partition.phase}",
        "The following operations are currently supported:",
        *dict.fromkeys(row.kind for row in partition.operators if row.supported),
        "The following operations are currently not supported:",
    ]
    for row in partition.operators:
        if not row.supported:
            lines.append(f"{row.kind}, {row.call}: {row.reason}" if row.call else f"{row.kind}: {row.reason}")
    supported = f"{partition.supported} of {partition.total}"
    lines += [
        f"{partition.percentage:.2f}% of arithmetic operations ({supported}) are supported",
        f"Num Partitions: {len(partition.subgraphs)}",
    ]
    for subgraph in partition.subgraphs:
        lines.append(f"Creating Partition #{subgraph.number} for device: {subgraph.device}")
        lines.append("The following operators will be included in this partition:")
        lines += [f"{kind}:{count}" for kind, count in subgraph.operators.items()]
    for line in lines:
        logger.info(line)


class PartitioningBackend:
    """Partitions captured graphs; called as torch.compile calls its backends. Raises PartitionError.

    module: class of the captured module
    script: file whose lines are reported as the places of operators
    report: receives each graph, including one that breaks a limit
    only: the only calls that run on the backend; everything else runs on the CPU
    calls: the calls of the graphs planned so far
    """

    def __init__(
        self,
        adapter: Adapter,
        config: PartitionConfig,
        module: str,
        script: str,
        report: Callable[[GraphPartition], None] = log_graph,
        numbers: Iterator[int] | None = None,
        only: frozenset[Part] | None = None,
    ) -> None:
        self.calls: dict[Part, PartCall] = {}
        self._only = only
        self.partitioning = Partitioning(adapter.name)
        self._adapter = adapter
        self._config = config
        self._module = module
        self._lines = ScriptLines(script)
        self._support = Support(adapter)
        self._report = report
        self._numbers = itertools.count() if numbers is None else numbers

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        mark_calls(graph.graph)
        number = next(self._numbers)
        try:
            written = written_operators(written_graph(graph, inputs))
        except NotAvailable:
            raise
        except Exception:  # noqa: BLE001, torch fails here, for example if the module defines an autograd function
            written = {}  # operators are then counted as dispatched
        request = Request(number, self._module, self._adapter.name, written, self._config, self._lines, self._only)

        def planned(module: torch.fx.GraphModule, phase: Phase) -> None:
            plan = plan_graph(module, phase, self._support, request)
            if phase == "forward":
                self.calls.update(plan.calls)
            partition, broken = plan.partition, None
            try:
                check(partition, self._config)
            except PartitionError as error:
                broken = error
                partition = dataclasses.replace(partition, violated=str(error))
            # A graph that breaks a limit is reported, too: the table shows the reason.
            self.partitioning.graphs.append(partition)
            self._report(partition)
            if broken is not None:
                raise broken

        def compiled(module: torch.fx.GraphModule, phase: Phase) -> Callable[..., Any]:
            return _executable(plan_graph(module, phase, self._support, request), self._adapter)

        return compile_with_autograd(graph, inputs, compiled, planned)


def _executable(plan: Plan, adapter: Adapter) -> torch.fx.GraphModule:
    """Compile the backend's subgraphs. The CPU's subgraphs run op by op, with torch's own kernels."""
    for name, device in plan.placed:
        if device == CPU:
            continue
        subgraph = getattr(plan.module, name)
        # Adapters compile graphs that return a tuple, while `fuse` creates graphs that return a single result without a
        # tuple.
        output = subgraph.graph.output_node()
        result = output.args[0]
        alone = isinstance(result, torch.fx.Node)
        nodes: Any = (result,) if alone else result
        output.args = (tuple(nodes),)
        subgraph.recompile()
        inputs = [node.meta.get("val") for node in subgraph.graph.nodes if node.op == "placeholder"]
        traced = [node.meta.get("val") for node in nodes]
        strides = [tuple(value.stride()) if isinstance(value, torch.Tensor) else None for value in traced]
        run = adapter.compile_graph(subgraph, inputs)
        delattr(plan.module, name)
        plan.module.add_module(name, Placed(run, strides, alone))
    plan.module.recompile()
    return plan.module


class Placed(torch.nn.Module):
    """A subgraph on a backend. Its results get the strides with which the rest of the graph was traced."""

    def __init__(self, run: Callable[..., Any], strides: Sequence[tuple[int, ...] | None], alone: bool) -> None:
        super().__init__()
        self._run = run
        self._strides = strides
        self._alone = alone

    def forward(self, *inputs: Any) -> Any:
        results = []
        for value, stride in zip(self._run(*inputs), self._strides, strict=True):
            if (
                stride is None
                or not isinstance(value, torch.Tensor)
                or tuple(value.stride()) == stride
                or extent_of(value.shape, stride) < value.numel()
            ):
                results.append(value)
            else:
                restrided = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device)
                results.append(restrided.copy_(value))
        return results[0] if self._alone else tuple(results)

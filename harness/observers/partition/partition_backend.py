"""A backend of torch.compile that partitions what it is given between a mode's backend and the CPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.fx

from ...backends.called_operators import ScriptLines
from ...errors import NotAvailable, PartitionError, UsageError, nearest
from ...hooks.backend_adapter import Adapter
from ...records.partition_record import GraphPartition, PartitionConfig, Partitioning
from ...torch_private.partitioner import Phase, compile_with_autograd, mark_calls, written_graph
from .graph_operators import Support, Written, written_operators
from .partition_execution import executable
from .partition_log import log_graph
from .partition_parts import Part, PartCall
from .partition_plan import Request, check, plan_graph


class PartitioningBackend:
    """Takes captured graphs, as torch.compile's backends do. `told` hears of each graph, also of one that
    breaks a limit.

    `module` is the class of what is captured, `script` the file whose lines operators are named by. With
    `only` everything but these calls goes to the CPU; `calls` are those that were met. Raises PartitionError.
    """

    def __init__(
        self,
        adapter: Adapter,
        config: PartitionConfig,
        module: str,
        script: str,
        told: Callable[[GraphPartition], None] = log_graph,
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
        self._told = told
        self._numbers = itertools.count() if numbers is None else numbers

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        mark_calls(graph.graph)
        request = Request(
            next(self._numbers),
            self._module,
            self._adapter.name,
            _written(graph, inputs),
            self._config,
            self._lines,
            self._only,
        )

        def planned(module: torch.fx.GraphModule, phase: Phase) -> None:
            plan = plan_graph(module, phase, self._support, request)
            if phase == "forward":
                self.calls.update(plan.calls)
            self._report(plan.partition)

        def compiled(module: torch.fx.GraphModule, phase: Phase) -> Callable[..., Any]:
            return executable(plan_graph(module, phase, self._support, request), self._adapter)

        return compile_with_autograd(graph, inputs, compiled, planned)

    def check_names(self) -> None:
        """Raise UsageError where an operator that was to be moved is in no graph."""
        missing = sorted(self._config.moved - self._seen())
        if missing:
            raise UsageError(f"ops_to_partition: no graph has {missing[0]!r}; {nearest(missing[0], self._seen())}")

    def _seen(self) -> frozenset[str]:
        return self.partitioning.kinds

    def _report(self, partition: GraphPartition) -> None:
        broken: PartitionError | None = None
        try:
            check(partition, self._config)
        except PartitionError as error:
            broken = error
            partition = dataclasses.replace(partition, violated=str(error))
        self.partitioning.graphs.append(partition)
        self._told(partition)
        if broken is not None:
            raise broken


def _written(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Written:
    """What the graph's operators are as they were written; nothing where torch cannot say, as of a function
    of autograd's that the module defines itself."""
    try:
        return written_operators(written_graph(graph, inputs))
    except NotAvailable:
        raise
    except Exception:  # noqa: BLE001, operators are then counted as they are dispatched
        return {}

"""The kernels of a run: the formulas of the kernels that its mode swapped in and, if the run kept its graphs, the
sources of the kernels that a compiler generated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..errors import NumdriftError
from ..graphs.culprit_marks import SeenCulprit
from ..graphs.run_graphs import RunGraphs
from ..records.results.culprit import Culprit
from ..records.tools.graph_record import Graph, Node
from ..runs.recorded_run import RecordedRun

MOST_NODES = 50_000
"""The largest number of nodes of a run's graphs that are searched for one page."""

LONGEST_SOURCE = 20_000
"""The largest number of characters of a source that the page shows."""


@dataclass(frozen=True)
class RunKernels:
    """The kernels of one run. The run's graphs are read when they are first needed."""

    run: RecordedRun

    def formula(self, kernel: str | None, op: str) -> str:
        """Return the formula of the kernel `kernel` that the mode swapped in for `op`; "" if there is no formula."""
        for swap in self.run.manifest.swaps:
            if swap.get("kernel") == kernel and str(swap.get("op")).partition(".")[0] == op:
                return str(swap.get("formula") or "")
        return ""

    def generated(self, culprit: Culprit, names: Mapping[str, str]) -> tuple[str, str]:
        """Return the name and the source of the first generated kernel that executes the culprit; "" if none is
        known."""
        seen = SeenCulprit(culprit, names, self.run.manifest.label)
        for graph, before in self._compiled:
            covered = {node.name for node in (before.nodes if before else ()) if seen.is_at(node)}
            for node in graph.nodes:
                if node.code and (not covered.isdisjoint(node.covers) or any(map(seen.is_at, node.body))):
                    return node.op, _short(node)
        return "", ""

    @cached_property
    def _compiled(self) -> list[tuple[Graph, Graph | None]]:
        """The post-compilation graphs, each with the graph that the compiler received."""
        try:
            return list(self._read())
        except NumdriftError:  # if a graph is damaged, the report is made without the sources
            return []

    def _read(self) -> Iterator[tuple[Graph, Graph | None]]:
        graphs = RunGraphs(self.run)
        entries = {entry.name: entry for entry in graphs.entries}
        left = MOST_NODES
        for entry in entries.values():
            if entry.stage != "post":
                continue
            before = entries.get(entry.pre)
            left -= entry.nodes + (before.nodes if before else 0)
            if left < 0:
                return
            yield graphs.graph(entry.name), graphs.graph(before.name) if before else None


def _short(node: Node) -> str:
    return node.code if len(node.code) <= LONGEST_SOURCE else f"{node.code[:LONGEST_SOURCE]}\n..."

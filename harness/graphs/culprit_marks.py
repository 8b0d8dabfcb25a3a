"""The marks of culprits on nodes of a graph, read from an `investigation.json` of schema 1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..records.codec import read
from ..records.results.culprit import Culprit
from ..records.results.findings import INVESTIGATION, SCHEMA
from ..records.tools.graph_record import Graph, Node
from ..runs.recorded_run import RecordedRun
from .run_graphs import RunGraphs


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a culprit's node.

    label: the name of the culprit
    numbers: the culprit's errors in this run (`max_ulp`, `rho`) and its `share` of the drift
    reason: the reason for the mark, as a sentence
    """

    label: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SeenCulprit:
    """A culprit of a pair, seen from the run `own`, one of the pair's sides; `names` maps each side to its run."""

    found: Culprit
    names: Mapping[str, str]
    own: str

    def is_at(self, node: Node) -> bool:
        """Check whether the node is the culprit's op, or part of its decomposition, in one of its phases and modules.

        If no module is known, the line decides; if no line is known either, the op alone decides.
        """
        culprit = self.found
        names = {f"{node.domain}.{node.op}", node.full_op, node.original}
        phases = [phase for phase in (culprit.phase, *(culprit.phases or ())) if phase]
        if culprit.op not in names or (phases and node.phase and node.phase not in phases):
            return False
        if culprit.module is not None and node.module is not None:
            return node.module == culprit.module or node.module in culprit.places
        # Only the file's name and the line are compared: the run may have been recorded in a different folder.
        return not (culprit.source and node.source) or Path(culprit.source).name == Path(node.source).name

    def mark(self) -> Mark:
        culprit = self.found
        other_run = next((name for name in self.names.values() if name != self.own), self.own)
        ulp, rho, kernels = map(self._by_name, (culprit.error_ulp, culprit.rho, culprit.kernel or {}))
        numbers = {"max_ulp": ulp.get(self.own), "rho": rho.get(self.own), "share": culprit.share_of_drift}
        kernel, against = kernels.get(self.own), kernels.get(other_run)
        differs = f" (kernel {kernel}, in {other_run} {against})" if kernel and against else ""
        errors = [f"{ulp[name]:g} ULP in {name}" for name in (self.own, other_run) if name in ulp]
        largest = f"; largest error: {', '.join(errors)}" if errors else ""
        at = f" at step {culprit.step}" if culprit.step is not None else ""
        return Mark(
            label=culprit.op or "",
            numbers={name: value for name, value in numbers.items() if value is not None},
            reason=f"{culprit.op} drifts from {other_run}{at}{differs}{largest}",
        )

    def _by_name(self, of_sides: Mapping[str, Any]) -> dict[str, Any]:
        """Return the known values of the sides, keyed by run name."""
        return {name: of_sides[side] for side, name in self.names.items() if of_sides.get(side) is not None}


def marks_for(run: RecordedRun, graph: Graph, pre: Graph | None = None) -> dict[str, Mark]:
    """Return the marks of a graph's nodes, and of the ops inside its kernels, keyed by name.

    A kernel is marked when it covers a marked node of its pre graph, which is read from the run unless it is passed. A
    run without an investigation has no marks. Raises JournalError if `investigation.json` cannot be read.
    """
    culprits = list(_culprits(run.path.parent / INVESTIGATION, run.manifest.mode))
    if not culprits:
        return {}
    if pre is None and graph.pre in {entry.name for entry in RunGraphs(run).entries}:
        pre = RunGraphs(run).graph(graph.pre)
    # An investigation names ops of the script, which are nodes of the pre-compilation graph. A compiler's kernel lists
    # the names of the nodes that it covers.
    covered = _marked(pre.nodes if pre else (), culprits)
    marks = {}
    for node in graph.nodes:
        inside = _marked(node.body, culprits)
        # The node's own mark, else that of a node that it covers, else that of the first culprit inside it.
        mark = _marked((node,), culprits).get(node.name)
        mark = mark or next((covered[name] for name in node.covers if name in covered), None)
        mark = mark or next(iter(inside.values()), None)
        marks.update(inside if mark is None else {**inside, node.name: mark})
    return marks


def _marked(nodes: Sequence[Node], culprits: Sequence[SeenCulprit]) -> dict[str, Mark]:
    named_culprits = (
        (node.name, next((culprit for culprit in culprits if culprit.is_at(node)), None)) for node in nodes
    )
    return {name: culprit.mark() for name, culprit in named_culprits if culprit is not None}


def _culprits(path: Path, mode: str) -> Iterator[SeenCulprit]:
    """Yield the culprits of the pairs with this mode. A culprit that is not an op has no node, and is left out."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise JournalError(path, f"schema {data['schema']!r} is unknown (known: {SCHEMA})")
        for pair in data["pairs"]:
            names = {"a": str(pair["a"]), "b": str(pair["b"])}
            if mode in names.values():
                culprits = read(list[Culprit], pair["culprits"])
                yield from [SeenCulprit(culprit, names, mode) for culprit in culprits if culprit.op]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is invalid: {error}"
        raise JournalError(path, why) from error

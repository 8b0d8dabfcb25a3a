"""Which nodes of a graph an investigation found guilty: read from its `investigation.json`, schema 1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..records.codec import read
from ..records.culprit import Culprit
from ..records.findings import INVESTIGATION, SCHEMA
from ..records.graph_record import Graph, Node
from ..runs.recorded_run import RecordedRun
from .run_graphs import RunGraphs


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of a culprit's node: `label` names the culprit, `numbers` are its drift in this run (`max_ulp`,
    `rho`, `share`), `reason` is a sentence."""

    label: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SeenCulprit:
    """A culprit of a pair as the run `own` sees it, which is one of its sides; `names` has both by side."""

    found: Culprit
    names: Mapping[str, str]
    own: str

    def is_at(self, node: Node) -> bool:
        """Whether the node is this op, or was decomposed from it, in a phase and a module of the culprit.

        Where the node's module is not known, its line decides, and where that is not known either, the op alone.
        """
        found = self.found
        names = {f"{node.domain}.{node.op}", node.full_op, node.original}
        phases = [phase for phase in (found.phase, *(found.phases or ())) if phase]
        if found.op not in names or (phases and node.phase and node.phase not in phases):
            return False
        if found.module is not None and node.module is not None:
            return node.module == found.module or node.module in found.places
        # Of a path only its end is held: the run may have been made in another folder.
        return not (found.source and node.source) or Path(found.source).name == Path(node.source).name

    def mark(self) -> Mark:
        found = self.found
        other = next((name for name in self.names.values() if name != self.own), self.own)
        ulp, rho, kernels = map(self._by_name, (found.error_ulp, found.rho, found.kernel or {}))
        numbers = {"max_ulp": ulp.get(self.own), "rho": rho.get(self.own), "share": found.share_of_drift}
        kernel, against = kernels.get(self.own), kernels.get(other)
        differs = f", kernel {kernel} against {against} in {other}" if kernel and against else ""
        errors = [f"{ulp[name]:g} ULP in {name}" for name in (self.own, other) if name in ulp]
        said = f"; largest error {', '.join(errors)}" if errors else ""
        at = f" at step {found.step}" if found.step is not None else ""
        return Mark(
            label=found.op or "",
            numbers={name: value for name, value in numbers.items() if value is not None},
            reason=f"{found.op} drifts from {other}{at}{differs}{said}",
        )

    def _by_name(self, of_sides: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of each side, by the name of its run."""
        return {name: of_sides[side] for side, name in self.names.items() if of_sides.get(side) is not None}


def marks_for(run: RecordedRun, graph: Graph, pre: Graph | None = None) -> dict[str, Mark]:
    """The marks of a graph's nodes, and of the ops inside its kernels, by their names.

    A kernel is marked when it covers a marked node of its pre graph, which is read from the run unless it is given.
    Without an investigation there are none. Raises JournalError when `investigation.json` cannot be read.
    """
    culprits = list(_culprits(run.path.parent / INVESTIGATION, run.manifest.mode))
    if not culprits:
        return {}
    if pre is None and graph.pre in {entry.name for entry in RunGraphs(run).entries}:
        pre = RunGraphs(run).graph(graph.pre)
    # An investigation names ops of the script, which stand in the graph before the compiler; the kernel that a compiler
    # made of one knows by name which nodes it covers.
    covered = _marked(pre.nodes if pre else (), culprits)
    marks = {}
    for node in graph.nodes:
        inside = _marked(node.body, culprits)
        # The node itself, else what it covers, else the first culprit inside of it.
        found = _marked((node,), culprits).get(node.name)
        found = found or next((covered[name] for name in node.covers if name in covered), None)
        found = found or next(iter(inside.values()), None)
        marks.update(inside if found is None else {**inside, node.name: found})
    return marks


def _marked(nodes: Sequence[Node], culprits: Sequence[SeenCulprit]) -> dict[str, Mark]:
    found = ((node.name, next((one for one in culprits if one.is_at(node)), None)) for node in nodes)
    return {name: culprit.mark() for name, culprit in found if culprit is not None}


def _culprits(path: Path, mode: str) -> Iterator[SeenCulprit]:
    """The culprits of the pairs that this mode belongs to; those that are no op have no node to mark."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise JournalError(path, f"schema {data['schema']!r} is not known (known: {SCHEMA})")
        for pair in data["pairs"]:
            names = {"a": str(pair["a"]), "b": str(pair["b"])}
            if mode in names.values():
                found = read(list[Culprit], pair["culprits"])
                yield from [SeenCulprit(one, names, mode) for one in found if one.op]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is not as expected: {error}"
        raise JournalError(path, why) from error

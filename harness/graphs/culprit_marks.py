"""Which nodes of a graph an investigation found guilty: read from its `investigation.json`, schema 1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..records.graph_record import Graph, Node
from ..runs.recorded_run import RecordedRun
from .run_graphs import RunGraphs

INVESTIGATION = "investigation.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said of a culprit's node: `label` names the culprit, `numbers` are its drift in this run (`max_ulp`,
    `rho`, `share`), `reason` is a sentence."""

    label: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """One culprit of a pair, as the run on `side` sees it; `other` is the run on the other side."""

    side: str
    other: str
    op: str
    phase: str | None
    module: str | None
    source: str
    step: int | None
    kernels: Mapping[str, str]
    ulp: Mapping[str, float]
    rho: Mapping[str, float]
    share: float | None

    def is_at(self, node: Node) -> bool:
        """Whether the node is this op, or was decomposed from it, in the culprit's phase and module.

        Where the node's module is not known, its line decides, and where that is not known either, the op alone.
        """
        names = {f"{node.domain}.{node.op}", node.full_op, node.original}
        if self.op not in names or (self.phase and node.phase and self.phase != node.phase):
            return False
        if self.module is not None and node.module is not None:
            return self.module == node.module
        return not (self.source and node.source) or _line(self.source) == _line(node.source)

    def mark(self) -> Mark:
        numbers = {"max_ulp": self.ulp.get(self.side), "rho": self.rho.get(self.side), "share": self.share}
        kernel, against = self.kernels.get(self.side), self.kernels.get(self.other)
        differs = f", kernel {kernel} against {against} in {self.other}" if kernel and against else ""
        errors = [f"{self.ulp[name]:g} ULP in {name}" for name in (self.side, self.other) if name in self.ulp]
        said = f"; largest error {', '.join(errors)}" if errors else ""
        at = f" at step {self.step}" if self.step is not None else ""
        return Mark(
            label=self.op,
            numbers={name: value for name, value in numbers.items() if value is not None},
            reason=f"{self.op} drifts from {self.other}{at}{differs}{said}",
        )


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
    covered = _marked(pre.nodes if pre else (), culprits)
    marks = {}
    for node in graph.nodes:
        inside = _marked(node.body, culprits)
        found = _marked((node,), culprits).get(node.name)
        found = found or next((covered[name] for name in node.covers if name in covered), None)
        found = found or next(iter(inside.values()), None)
        marks.update(inside if found is None else {**inside, node.name: found})
    return marks


def _marked(nodes: Sequence[Node], culprits: Sequence[Culprit]) -> dict[str, Mark]:
    found = ((node.name, next((one for one in culprits if one.is_at(node)), None)) for node in nodes)
    return {name: culprit.mark() for name, culprit in found if culprit is not None}


def _line(source: str) -> str:
    """`train.py:31` of any path that ends in it."""
    return Path(source).name


def _culprits(path: Path, mode: str) -> Iterator[Culprit]:
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
                yield from [_culprit(one, mode, names) for one in pair["culprits"] if one.get("op")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is not as expected: {error}"
        raise JournalError(path, why) from error


def _culprit(data: Mapping[str, Any], mode: str, names: Mapping[str, str]) -> Culprit:
    other = next((name for name in names.values() if name != mode), mode)

    def sides(field_: str) -> dict[str, Any]:
        values = data.get(field_) or {}
        return {names[side]: values[side] for side in names if values.get(side) is not None}

    share, step = data.get("share_of_drift"), data.get("step")
    return Culprit(
        side=mode,
        other=other,
        op=_text(data["op"]),
        phase=_optional_text(data.get("phase")),
        module=_optional_text(data.get("module")),
        source=_text(data.get("source") or ""),
        step=None if step is None else int(step),
        kernels={name: str(kernel) for name, kernel in sides("kernel").items()},
        ulp={name: float(value) for name, value in sides("error_ulp").items()},
        rho={name: float(value) for name, value in sides("rho").items()},
        share=None if share is None else float(share),
    )


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value

"""The rows of the page's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..diff.difference_record import Cast, Diff, OpCount

PHASE_ORDER = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Pairs that say the same: `a` and `b` are the ops of each side, `count` how often, `pairs` their numbers
    in the diff, `modules` where."""

    kind: str
    phase: str
    what: str
    a: str
    b: str
    modules: Sequence[str]
    pairs: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One graph of the page."""

    side: str
    name: str
    stage: str
    phase: str
    nodes: int
    hash: str
    seconds: float | None
    cut: str
    notes: Sequence[str]


def count_rows(diff: Diff) -> list[OpCount]:
    """The op counts, those that differ first, then by phase and op."""
    return sorted(diff.counts, key=lambda one: (one.a == one.b, _phase_place(one.phase), one.op))


def cast_rows(diff: Diff) -> list[Cast]:
    return sorted(
        diff.casts, key=lambda one: (_phase_place(one.phase), one.side, one.from_dtype, one.to_dtype)
    )


def group_rows(diff: Diff, data: Mapping[str, Any]) -> list[GroupRow]:
    """The pairs that are not one op against the same op, those that read the same in one row."""
    ops = {
        (side, graph["name"], node["name"]): node["op"]
        for side, graphs in data["graphs"].items()
        for graph in graphs
        for node in graph["nodes"]
    }
    found: dict[tuple[str, str, str, str, str], list[int]] = {}
    for number, pair in enumerate(diff.pairs):
        if pair.kind != "same":
            a = ", ".join(ops.get(("a", place.graph, place.node), place.node) for place in pair.a)
            b = ", ".join(ops.get(("b", place.graph, place.node), place.node) for place in pair.b)
            found.setdefault((pair.kind, pair.phase, pair.what, a, b), []).append(number)
    rows = [
        GroupRow(*said, modules=_modules(diff, numbers), pairs=numbers) for said, numbers in found.items()
    ]
    return sorted(rows, key=lambda row: _phase_place(row.phase))


def graph_rows(data: Mapping[str, Any]) -> list[GraphRow]:
    return [
        GraphRow(
            side=side.upper(),
            name=graph["name"],
            stage=graph["stage"],
            phase=graph["phase"],
            nodes=len(graph["nodes"]),
            hash=str(graph.get("hash", "")),
            seconds=graph.get("seconds"),
            cut=_cut(graph.get("cut")),
            notes=graph.get("notes", ()),
        )
        for side, graphs in data["graphs"].items()
        for graph in graphs
    ]


def _cut(cut: Mapping[str, Any] | None) -> str:
    if cut is None:
        return ""
    said = " ".join(part for part in (cut["reason"], cut.get("op", "")) if part)
    return f"{said} at {cut['source']}" if cut.get("source") else said


def _modules(diff: Diff, numbers: Sequence[int]) -> list[str]:
    known = (diff.pairs[number].module for number in numbers)
    return list(dict.fromkeys("(root)" if module == "" else module for module in known if module is not None))


def _phase_place(phase: str) -> int:
    return PHASE_ORDER.index(phase) if phase in PHASE_ORDER else len(PHASE_ORDER)

"""The data of the page's script: graphs, pairs and marks as plain JSON values, each long text written once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.tools.graph_record import Graph
from ..culprit_marks import Mark
from ..diff.difference_record import MINOR_ROLES, Cast, Diff, GraphPlace, NodePair, OpCount, Side, phase_place
from ..run_graphs import RunGraphs

Marks = Mapping[str, Mapping[str, Mark]]
"""The Mark of each node, keyed by graph name and node name."""

Drift = Mapping[str, tuple[float, int]]
"""The largest drift of a module's values, keyed by module: the score, and its level from 0 (equal) to 4 (a fault)."""

LARGEST_SAFE = 2**53
"""The bound beyond which JavaScript's numbers do not represent every integer exactly."""

BODY_FIELDS = ("name", "domain", "op", "overload", "inputs", "outputs", "attributes")


class Texts:
    """Stacks and sources, each written once and referred to by its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def pieces(self, text: str, parts: Iterable[str]) -> list[int]:
        """Split `text` into those of the `parts` that occur in it and the text between them.

        Return the numbers of the pieces.
        """
        longest_first = sorted({part for part in parts if part}, key=lambda part: (-len(part), part))
        if not longest_first:
            return [self.number(text)]
        anyone = "|".join(re.escape(part) for part in longest_first)
        return [self.number(piece) for piece in re.split(f"({anyone})", text) if piece]

    def listed(self) -> list[str]:
        return list(self._numbers)


def page_data(diff: Diff, a: RunGraphs, b: RunGraphs, marks_a: Marks, marks_b: Marks, drift: Drift) -> dict[str, Any]:
    """Return everything that the page draws. Raises JournalError if a graph cannot be read."""
    texts = Texts()
    graphs = {
        "a": [_graph(graph, texts, marks_a) for graph in compared(diff.a, a)],
        "b": [_graph(graph, texts, marks_b) for graph in compared(diff.b, b)],
    }
    made = {
        "sides": {"a": _side(diff.a), "b": _side(diff.b)},
        "pairs": [_pair(pair) for pair in diff.pairs],
        "graphs": graphs,
        "texts": texts.listed(),
        "drift": {module: [f"{score:.3g}", level] for module, (score, level) in drift.items()},
    }
    plain: dict[str, Any] = as_plain(made)
    return plain


def compared(side: Side, graphs: RunGraphs) -> list[Graph]:
    """Return the graphs of a side at every stage, in the order of their execution."""
    return [graphs.graph(name) for name in dict.fromkeys((*side.graphs, *side.post_graphs))]


def as_plain(value: Any) -> Any:
    """Return the value as JSON that JavaScript reads exactly.

    A number that JSON or JavaScript cannot represent becomes text.
    """
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN, and a browser's JSON.parse rejects the NaN that Python writes
    if isinstance(value, int) and abs(value) > LARGEST_SAFE:
        return str(value)
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


def _graph(graph: Graph, texts: Texts, marks: Marks) -> dict[str, Any]:
    made = graph.to_json()
    marked = marks.get(graph.name, {})
    nodes = []
    for node in made["nodes"]:
        shown = dict(node)
        for name in ("stack", "code"):
            if name in shown:
                shown[name] = texts.number(shown[name])
        if "body" in shown:
            shown["body"] = [{name: inner[name] for name in BODY_FIELDS if name in inner} for inner in shown["body"]]
        if mark := marked.get(node["name"]):
            numbers = [list(item) for item in mark.numbers.items()]
            shown["mark"] = {"label": mark.label, "numbers": numbers, "reason": mark.reason}
        nodes.append(shown)
    made["nodes"] = nodes
    # The source of a whole graph contains its kernels' sources: it is stored as the numbers of its pieces.
    if graph.code:
        made["code"] = texts.pieces(graph.code, (node.code for node in graph.nodes))
    if graph.cut is not None and graph.cut.stack:
        made["cut"] = {**made["cut"], "stack": texts.number(graph.cut.stack)}
    return made


def _side(side: Side) -> dict[str, Any]:
    return {"run": side.run, "mode": side.mode, "step": side.step}


def _pair(pair: NodePair) -> dict[str, Any]:
    return {
        "kind": pair.kind,
        "phase": pair.phase,
        "what": pair.what,
        "a": _places(pair.a),
        "b": _places(pair.b),
        "by": pair.by,
        "module": pair.module,
        "minor": pair.role in MINOR_ROLES,
    }


def _places(places: Sequence[GraphPlace]) -> list[list[str]]:
    return [[place.graph, place.node] for place in places]


# The rows of the page's tables.


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Pairs of the same ops as one row.

    a, b: the ops of each side
    modules: the modules of the pairs
    pairs: the numbers of the pairs in the diff
    count: the number of pairs
    """

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
class PageRow:
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
    """Return the op counts: those that differ between the sides first, and in both groups by phase and op."""
    return sorted(diff.counts, key=lambda count: (count.a == count.b, phase_place(count.phase), count.op))


def cast_rows(diff: Diff) -> list[Cast]:
    return sorted(diff.casts, key=lambda cast: (phase_place(cast.phase), cast.side, cast.from_dtype, cast.to_dtype))


def group_rows(diff: Diff, data: Mapping[str, Any]) -> list[GroupRow]:
    """Return the pairs of different ops, with pairs of the same text in one row."""
    ops = {
        (side, graph["name"], node["name"]): node["op"]
        for side, graphs in data["graphs"].items()
        for graph in graphs
        for node in graph["nodes"]
    }
    # The page's script highlights the nodes of a pair by the pair's number in the diff.
    numbers_by_row: dict[tuple[str, str, str, str, str], list[int]] = {}
    for number, pair in enumerate(diff.pairs):
        if pair.kind != "same":
            a = ", ".join(ops.get(("a", place.graph, place.node), place.node) for place in pair.a)
            b = ", ".join(ops.get(("b", place.graph, place.node), place.node) for place in pair.b)
            numbers_by_row.setdefault((pair.kind, pair.phase, pair.what, a, b), []).append(number)
    rows = []
    for key, numbers in numbers_by_row.items():
        modules = dict.fromkeys(diff.pairs[number].module for number in numbers)
        named = ["(root)" if module == "" else module for module in modules if module is not None]
        rows.append(GroupRow(*key, modules=named, pairs=numbers))
    return sorted(rows, key=lambda row: phase_place(row.phase))


def graph_rows(data: Mapping[str, Any]) -> list[PageRow]:
    rows = []
    for side, graphs in data["graphs"].items():
        for graph in graphs:
            cut = graph.get("cut") or {}
            reason = " ".join(part for part in (cut.get("reason", ""), cut.get("op", "")) if part)
            row = PageRow(
                side=side.upper(),
                name=graph["name"],
                stage=graph["stage"],
                phase=graph["phase"],
                nodes=len(graph["nodes"]),
                hash=str(graph.get("hash", "")),
                seconds=graph.get("seconds"),
                cut=f"{reason} at {cut['source']}" if cut.get("source") else reason,
                notes=graph.get("notes", ()),
            )
            rows.append(row)
    return rows

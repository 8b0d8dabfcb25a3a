"""What is drawn of a graph: boxes with their lines of text, and the lines between them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...records.graph_record import Graph, Node, Value
from ..culprit_marks import Mark

LONGEST = 42
"""Characters in a line of a box; what is longer is wrapped or shortened."""

TIMES = "\N{MULTIPLICATION SIGN}"

MOST_COVERED = 12
"""Ops that a kernel's box names."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box. `kind` is `kernel`, `op` or `edge` (an input or output), `phase` that of the node; `head` is
    its title, `lines` what stands under it, and `mark` what is said of a culprit."""

    kind: str
    phase: str
    head: str
    lines: Sequence[str] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes by name, the lines from box to box, and the lines of text above them."""

    title: str
    note: str
    boxes: Mapping[str, Box]
    lines: Sequence[tuple[str, str]]


STAGES = {"pre": "before its compiler", "post": "after its compiler", "dynamo": "as dynamo captured it"}


def picture_of(graph: Graph, marks: Mapping[str, Mark], note: str = "") -> Picture:
    """Say what to draw: a box a node, a box each for outputs and for inputs that are taken, and a line an
    edge."""
    boxes = {f"node {number}": _node_box(node, graph, marks) for number, node in enumerate(graph.nodes)}
    makers = {one: f"node {number}" for number, node in enumerate(graph.nodes) for one in node.outputs}
    lines: dict[tuple[str, str], None] = {}
    for number, node in enumerate(graph.nodes):
        for name in filter(None, node.inputs):
            value = graph.values.get(name, Value())
            if name not in makers and _is_number(value):
                continue
            maker = makers.get(name, f"input {name}")
            if name not in makers:
                boxes[maker] = _edge_box(name, value)
            lines[maker, f"node {number}"] = None
    for name in dict.fromkeys(graph.outputs):
        if name in makers:
            boxes[f"output {name}"] = _edge_box(name, graph.values.get(name, Value()))
            lines[makers[name], f"output {name}"] = None
    done = STAGES.get(graph.stage, "as it was executed")
    title = " · ".join(filter(None, (graph.mode, graph.phase, f"step {graph.step}", done)))
    kernels = any(box.kind == "kernel" for box in boxes.values())
    legend = ("thick frames: kernels with the ops in them" if kernels else "", "white: inputs and outputs")
    said = "; ".join(filter(None, (note, *legend)))
    return Picture(_printable(title), said, boxes, tuple(line for line in lines if line[0] != line[1]))


def _is_number(value: Value) -> bool:
    """Whether an input is a plain number of the program, which has no box."""
    return value.binding == "constant" and value.shape == ()


def _node_box(node: Node, graph: Graph, marks: Mapping[str, Mark]) -> Box:
    kernel = bool(node.body) or node.domain == "inductor"
    domain = "" if node.domain == "aten" or kernel else f"{node.domain}."
    lines = _covered(node) if kernel else []
    lines += [f"from {node.original}"] if node.original else []
    lines += [_types([graph.values[name] for name in node.outputs if name in graph.values])]
    place = [part for part in (node.module, _line(node.source)) if part]
    lines += [_short(" · ".join(place), keep_end=True)] if place else []
    return Box(
        kind="kernel" if kernel else "op",
        phase=node.phase,
        head=_short(f"{domain}{node.op}"),
        lines=[line for line in lines if line],
        mark=_numbers(marks[node.name]) if node.name in marks else "",
    )


def _edge_box(name: str, value: Value) -> Box:
    lines = [_short(value.binding, keep_end=True), _types([value])]
    return Box("edge", "", _short(name), [line for line in lines if line])


def _covered(node: Node) -> list[str]:
    """The ops in a kernel, as wrapped lines."""
    ops = [one.op for one in node.body] or list(node.covers)
    named = ops[:MOST_COVERED] + ([f"and {len(ops) - MOST_COVERED} more"] if len(ops) > MOST_COVERED else [])
    return textwrap.wrap(" · ".join(_short(one) for one in named), LONGEST, break_long_words=False)


def _types(values: Sequence[Value]) -> str:
    texts = []
    for value in values[:3]:
        shape = "" if value.shape is None else TIMES.join(str(size) for size in value.shape) or "scalar"
        texts.append(" ".join(part for part in (shape, value.dtype) if part))
    return _short(", ".join(filter(None, texts)) + (", …" if len(values) > 3 else ""))


def _numbers(mark: Mark) -> str:
    worst = mark.numbers.get("max_ulp")
    return f"⚠ {_short(mark.label)}" + (f": {worst:,.4g} ULP" if worst is not None else "")


def _line(source: str) -> str:
    return source.replace("\\", "/").rpartition("/")[2]


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _short(text: str, *, keep_end: bool = False) -> str:
    text = _printable(" ".join(text.split()))
    if len(text) <= LONGEST:
        return text
    if keep_end:
        return f"…{text[1 - LONGEST :]}"
    half = LONGEST // 2
    return f"{text[: half + 3]}…{text[-(half - 4) :]}"

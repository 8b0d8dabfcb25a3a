"""Draw graphs into PNG or SVG files, without a browser."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from ...records.tools.graph_record import Graph, Value
from ..culprit_marks import Mark
from .drawing_layout import Point, lay_out, neighbourhood

WHOLE, PART = 250, 100
"""If a graph has more than WHOLE nodes, only PART of them are drawn."""

DPI = 144
PIXELS = 30_000
"""The longest side of a PNG; a larger picture is drawn at a lower resolution."""

POINTS_AN_INCH = 72
HEADER = 40.0  # points
SMALLEST = 480.0  # points, the minimum width, which leaves room for the title

FILLS = {"forward": "#d9e8f5", "backward": "#fbe5d0", "optimizer": "#d8f0e6", "": "#e8e8e8"}
STROKES = {"forward": "#0072B2", "backward": "#B65000", "optimizer": "#00795A", "": "#666666"}
"""Blue, orange and green of Okabe and Ito, darkened for lines."""

CULPRIT = "#CC0000"

HEAD = FontProperties(family="DejaVu Sans", size=9, weight="bold")
TEXT = FontProperties(family="DejaVu Sans", size=7)
LINE = {"head": 12.5, "text": 9.6}  # points
PADDING = (9.0, 5.0)  # points


def draw(graph: Graph, marks: Mapping[str, Mark], path: Path, kind: str) -> str:
    """Draw a graph into a file of `kind` `png` or `svg`; return a note on omitted nodes, "" if there are none.

    Only a part of a large graph is drawn: the nodes around the marked nodes, or its first nodes if none is marked.
    """
    shown = graph if len(graph.nodes) <= WHOLE else neighbourhood(graph, marks.keys(), PART)
    left_out = ""
    if shown is not graph:
        marked = marks.keys() & {node.name for node in graph.nodes}
        around = "around the culprits" if marked else "from the start"
        left_out = f"{len(shown.nodes):,} of {len(graph.nodes):,} nodes, {around}"
    figure = figure_of(picture_of(shown, marks, left_out))
    # No dates and no random ids: equal graphs become equal files.
    metadata = {"png": {"Software": None}, "svg": {"Date": None}}[kind]
    longest = max(figure.get_size_inches())
    with mpl.rc_context({"svg.hashsalt": "numdrift", "svg.fonttype": "none"}):
        figure.savefig(path, format=kind, metadata=metadata, dpi=min(DPI, PIXELS / longest))
    return left_out


def figure_of(picture: Picture) -> Figure:
    """Lay out the picture and draw it: one point of the layout is one point on paper."""
    # The layout needs the size of every text, and the figure's size follows from the layout. Texts are therefore
    # measured on a figure of a provisional size.
    figure = Figure(figsize=(1, 1), facecolor="white")
    canvas = FigureCanvasAgg(figure)
    sizes = {name: _size(canvas, box) for name, box in picture.boxes.items()}
    layout = lay_out(sizes, picture.lines)
    width, height = max(layout.width, SMALLEST), layout.height + HEADER
    left = (width - layout.width) / 2
    figure.set_size_inches(width / POINTS_AN_INCH, height / POINTS_AN_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    _write(axes, 10, 16, picture.title, HEAD, ha="left")
    _write(axes, 10, 30, picture.note, TEXT, ha="left", color="#444444")
    centres = {name: (x + left, y + HEADER) for name, (x, y) in layout.centres.items()}
    for (a, b), points in zip(picture.lines, layout.lines, strict=True):
        inner = [(x + left, y + HEADER) for x, y in points[1:-1]]
        start = _border(centres[a], sizes[a], inner[0], below=True)
        end = _border(centres[b], sizes[b], inner[-1], below=False)
        # A line runs down through its points. Between two successive points it bends half-way down: both control points
        # are at that height.
        vertices, codes = [start], [Curve.MOVETO]
        for (x, y), to in pairwise([start, *inner, end]):
            vertices += [(x, (y + to[1]) / 2), (to[0], (y + to[1]) / 2), to]
            codes += [Curve.CURVE4] * 3
        head = "-|>,head_length=4,head_width=2"
        arrow = FancyArrowPatch(path=Curve(vertices, codes), arrowstyle=head, color="#777777", linewidth=0.8, zorder=1)
        axes.add_patch(arrow)
    for name, box in picture.boxes.items():
        _draw_box(axes, box, centres[name], sizes[name])
    return figure


def _size(canvas: FigureCanvasAgg, box: Box) -> tuple[float, float]:
    renderer: RendererAgg = canvas.get_renderer()  # type: ignore[no-untyped-call]
    measure: Any = renderer.get_text_width_height_descent

    def width(text: str, font: FontProperties) -> float:
        pixels: float = measure(text, font, ismath=False)[0]
        return pixels * (POINTS_AN_INCH / float(renderer.dpi))

    small = [*box.lines, *([box.mark] if box.mark else [])]
    widest = max([width(box.head, HEAD), *(width(line, TEXT) for line in small)])
    height = LINE["head"] + LINE["text"] * len(small)
    return widest + 2 * PADDING[0], height + 2 * PADDING[1]


def _draw_box(axes: mpl.axes.Axes, box: Box, centre: Point, size: tuple[float, float]) -> None:
    fill, stroke = FILLS.get(box.phase, FILLS[""]), STROKES.get(box.phase, STROKES[""])
    fill, stroke, width, rounding = {
        "edge": ("#ffffff", "#999999", 0.8, 9),
        "op": (fill, stroke, 0.9, 3),
        "kernel": (fill, stroke, 2.0, 3),
    }[box.kind]
    if box.mark:
        stroke, width = CULPRIT, 3.0
    x, y = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    axes.add_patch(
        FancyBboxPatch(
            (x, y), *size, boxstyle=f"round,pad=0,rounding_size={rounding}",
            facecolor=fill, edgecolor=stroke, linewidth=width, zorder=2,
        )
    )  # fmt: skip
    y += PADDING[1] + LINE["head"] * 0.55
    light = box.kind == "edge"
    _write(axes, centre[0], y, box.head, TEXT if light else HEAD, color="#222222")
    y += LINE["head"] * 0.45 + LINE["text"] * 0.5
    for line in box.lines:
        _write(axes, centre[0], y, line, TEXT, color="#555555" if light else "#333333")
        y += LINE["text"]
    if box.mark:
        _write(axes, centre[0], y, box.mark, TEXT, color=CULPRIT)


def _write(
    axes: mpl.axes.Axes, x: float, y: float, text: str, font: FontProperties,
    *, color: str = "#111111", ha: str = "center",
) -> None:  # fmt: skip
    axes.text(x, y, text, fontproperties=font, ha=ha, va="center_baseline", color=color, zorder=3, parse_math=False)


def _border(centre: Point, size: tuple[float, float], towards: Point, *, below: bool) -> Point:
    """Return the point where a line to `towards` leaves the box at its lower edge (`below`) or upper edge."""
    room = max(size[0] / 2 - PADDING[0], 0)
    x = min(max(towards[0], centre[0] - room), centre[0] + room)
    return x, centre[1] + (size[1] / 2 if below else -size[1] / 2)


# The contents of a drawing: boxes with their lines of text, and the lines between them.

LONGEST = 42
"""The maximum number of characters in a line of a box; a longer text is wrapped or shortened."""

TIMES = "\N{MULTIPLICATION SIGN}"

MOST_COVERED = 12
"""The maximum number of ops that a kernel's box names."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box.

    kind: `kernel`, `op` or `edge` (an input or output)
    phase: the node's phase
    head: the title
    lines: the texts under the title
    mark: the text on a culprit, "" without one
    """

    kind: str
    phase: str
    head: str
    lines: Sequence[str] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes by name, the lines from box to box, and the title and note above them."""

    title: str
    note: str
    boxes: Mapping[str, Box]
    lines: Sequence[tuple[str, str]]


STAGES = {"pre": "before its compiler", "post": "after its compiler", "dynamo": "as dynamo captured it"}


def picture_of(graph: Graph, marks: Mapping[str, Mark], note: str = "") -> Picture:
    """Choose what to draw: a box for each node, each output and each input that is read, and a line for each edge."""
    boxes = {}
    for number, node in enumerate(graph.nodes):
        kernel = bool(node.body) or node.domain == "inductor"
        texts = []
        if kernel:
            ops = [inner.op for inner in node.body] or list(node.covers)
            more = [f"and {len(ops) - MOST_COVERED} more"] if len(ops) > MOST_COVERED else []
            named = " · ".join(_short(text) for text in [*ops[:MOST_COVERED], *more])
            texts += textwrap.wrap(named, LONGEST, break_long_words=False)
        texts += [f"from {node.original}"] if node.original else []
        texts += [_types([graph.values[name] for name in node.outputs if name in graph.values])]
        # A path is cut to the file's name and the line; shortening keeps the end of a text.
        place = [part for part in (node.module, node.source.replace("\\", "/").rpartition("/")[2]) if part]
        texts += [_short(" · ".join(place), keep_end=True)] if place else []
        caption = ""
        if mark := marks.get(node.name):
            worst = mark.numbers.get("max_ulp")
            caption = f"⚠ {_short(mark.label)}" + (f": {worst:,.4g} ULP" if worst is not None else "")
        head = _short(node.op if node.domain == "aten" or kernel else f"{node.domain}.{node.op}")
        shown = [text for text in texts if text]
        boxes[f"node {number}"] = Box("kernel" if kernel else "op", node.phase, head, shown, caption)
    makers = {output: f"node {number}" for number, node in enumerate(graph.nodes) for output in node.outputs}
    lines: dict[tuple[str, str], None] = {}
    for number, node in enumerate(graph.nodes):
        for name in filter(None, node.inputs):
            value = graph.values.get(name, Value())
            if name not in makers and value.binding == "constant" and value.shape == ():
                continue  # a plain number of the program
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
    legend = ("thick frames: kernels with their ops" if kernels else "", "white: inputs and outputs")
    caption = "; ".join(filter(None, (note, *legend)))
    # A line from a box to itself, as for an in-place op, is left out.
    return Picture(_printable(title), caption, boxes, tuple(line for line in lines if line[0] != line[1]))


def _edge_box(name: str, value: Value) -> Box:
    lines = [_short(value.binding, keep_end=True), _types([value])]
    return Box("edge", "", _short(name), [line for line in lines if line])


def _types(values: Sequence[Value]) -> str:
    texts = []
    for value in values[:3]:
        shape = "" if value.shape is None else TIMES.join(str(size) for size in value.shape) or "scalar"
        texts.append(" ".join(part for part in (shape, value.dtype) if part))
    return _short(", ".join(filter(None, texts)) + (", …" if len(values) > 3 else ""))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _short(text: str, *, keep_end: bool = False) -> str:
    text = _printable(" ".join(text.split()))
    if len(text) <= LONGEST:
        return text
    if keep_end:
        return f"…{text[1 - LONGEST :]}"
    half = LONGEST // 2
    return f"{text[: half + 3]}…{text[-(half - 4) :]}"

"""Where the boxes and lines of a graph go: dagre, in a JavaScript engine inside of this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import NotAvailable

DAGRE = Path(__file__).parent.parent / "javascript" / "dagre.min.js"

SECONDS, BYTES = 120, 2 * 2**30
"""What a layout may take; some hundreds of boxes take two seconds, some thousands minutes."""

SCRIPT = """
globalThis.structuredClone = (value) => JSON.parse(JSON.stringify(value));  // a browser has it, V8 alone has not
function layOut(text) {
  const given = JSON.parse(text);
  const graph = new dagre.graphlib.Graph({multigraph: true});
  graph.setGraph({nodesep: 14, edgesep: 8, ranksep: 34, marginx: 8, marginy: 8});
  given.boxes.forEach(([width, height], number) => graph.setNode(String(number), {width, height}));
  given.lines.forEach(([from, to], number) => graph.setEdge(String(from), String(to), {}, String(number)));
  dagre.layout(graph);
  const size = graph.graph();
  return JSON.stringify({
    width: given.boxes.length ? size.width : 0,
    height: given.boxes.length ? size.height : 0,
    centres: given.boxes.map((_, number) => [graph.node(String(number)).x, graph.node(String(number)).y]),
    lines: given.lines.map(([from, to], number) =>
      graph.edge(String(from), String(to), String(number)).points.map((point) => [point.x, point.y])),
  });
}
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Centres of the boxes by their names, the points of each line, and the size of it all; y grows
    downwards."""

    centres: Mapping[str, Point]
    lines: Sequence[Sequence[Point]]
    width: float
    height: float


def lay_out(boxes: Mapping[str, tuple[float, float]], lines: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes of these widths and heights so that lines, from one box to another, point down.

    Raises NotAvailable where the JavaScript engine is not installed, and for what would take it too long.
    """
    try:
        from py_mini_racer import JSOOMException, JSTimeoutException, MiniRacer
    except ImportError as error:
        raise NotAvailable("drawing graphs", str(error), "pip install mini-racer") from None
    numbers = {name: number for number, name in enumerate(boxes)}
    given = {
        "boxes": list(boxes.values()),
        "lines": [(numbers[a], numbers[b]) for a, b in lines],
    }
    engine = MiniRacer()
    try:
        engine.eval(DAGRE.read_text(encoding="utf-8"))
        engine.eval(SCRIPT)
        answer = engine.call("layOut", json.dumps(given), timeout_sec=SECONDS, max_memory=BYTES)
    except (JSOOMException, JSTimeoutException):
        why = f"its {len(boxes)} boxes and {len(lines)} lines are too many"
        raise NotAvailable("the picture", why, "open the graph in Netron") from None
    finally:
        engine.close()
    placed = json.loads(str(answer))
    return Layout(
        centres={name: _point(placed["centres"][number]) for name, number in numbers.items()},
        lines=[[_point(point) for point in line] for line in placed["lines"]],
        width=placed["width"],
        height=placed["height"],
    )


def _point(values: Sequence[float]) -> Point:
    return (values[0], values[1])

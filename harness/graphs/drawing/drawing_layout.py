"""The positions of a graph's boxes and lines, computed by dagre in a JavaScript engine within this process."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import NotAvailable
from ...records.tools.graph_record import Graph

DAGRE = Path(__file__).parent.parent / "javascript" / "dagre.min.js"

SECONDS, BYTES = 120, 2 * 2**30
"""The limits of a layout. Hundreds of boxes take two seconds, thousands take minutes."""

SCRIPT = """
globalThis.structuredClone = (value) => JSON.parse(JSON.stringify(value));  // V8 lacks this function of browsers
function layOut(text) {
  const request = JSON.parse(text);
  const graph = new dagre.graphlib.Graph({multigraph: true});
  graph.setGraph({nodesep: 14, edgesep: 8, ranksep: 34, marginx: 8, marginy: 8});
  request.boxes.forEach(([width, height], number) => graph.setNode(String(number), {width, height}));
  request.lines.forEach(([from, to], number) => graph.setEdge(String(from), String(to), {}, String(number)));
  dagre.layout(graph);
  const size = graph.graph();
  return JSON.stringify({
    width: request.boxes.length ? size.width : 0,
    height: request.boxes.length ? size.height : 0,
    centres: request.boxes.map((_, number) => [graph.node(String(number)).x, graph.node(String(number)).y]),
    lines: request.lines.map(([from, to], number) =>
      graph.edge(String(from), String(to), String(number)).points.map((point) => [point.x, point.y])),
  });
}
"""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """The centres of boxes by name, the points of each line, and the total size; y grows downwards."""

    centres: Mapping[str, Point]
    lines: Sequence[Sequence[Point]]
    width: float
    height: float


def lay_out(boxes: Mapping[str, tuple[float, float]], lines: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes of these widths and heights so that lines between boxes point down.

    Raises NotAvailable if the JavaScript engine is not installed, or if the graph exceeds the engine's limits.
    """
    try:
        from py_mini_racer import JSOOMException, JSTimeoutException, MiniRacer
    except ImportError as error:
        raise NotAvailable("drawing graphs", str(error), "pip install mini-racer") from None
    # Names may contain anything, so the script receives numbers, and returns the boxes in the same order.
    numbers = {name: number for number, name in enumerate(boxes)}
    request = {
        "boxes": list(boxes.values()),
        "lines": [(numbers[a], numbers[b]) for a, b in lines],
    }
    engine = MiniRacer()
    try:
        engine.eval(DAGRE.read_text(encoding="utf-8"))
        engine.eval(SCRIPT)
        answer = engine.call("layOut", json.dumps(request), timeout_sec=SECONDS, max_memory=BYTES)
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


# The neighbourhood of some nodes: a part of a large graph, small enough to look at.


def neighbourhood(graph: Graph, centres: Collection[str], most: int) -> Graph:
    """Return the graph reduced to at most `most` nodes: those nearest to the centres along its edges.

    If no centre is in the graph, return the largest connected piece among its first nodes. The inputs of the part
    include the values that it reads from the rest of the graph. Its outputs are those outputs of the graph that it
    computes.
    """
    if len(graph.nodes) <= most:
        return graph
    present = [node.name for node in graph.nodes if node.name in centres]
    nodes = _nearest(_neighbours(graph), present, most) if present else set[str]()
    if not present:
        # Skip the nodes that read no other node, such as fills and casts of parameters: a graph may begin with hundreds
        # of them, which show little.
        made = {name for node in graph.nodes for name in node.outputs}
        inner = [node for node in graph.nodes if not made.isdisjoint(node.inputs)] or list(graph.nodes)
        neighbours = _neighbours(replace(graph, nodes=tuple(inner[:most])))
        left = [node.name for node in inner[:most]]
        while left:
            piece = _nearest(neighbours, left[:1], most)
            left = [name for name in left if name not in piece]
            nodes = max(nodes, piece, key=len)
    kept = tuple(node for node in graph.nodes if node.name in nodes)
    made = {name for node in kept for name in node.outputs}
    inputs = dict.fromkeys(name for node in kept for name in node.inputs if name and name not in made)
    outputs = tuple(name for name in graph.outputs if name in made)
    return replace(graph, nodes=kept, inputs=tuple(inputs), outputs=outputs)


def _nearest(neighbours: Mapping[str, Collection[str]], starts: Collection[str], most: int) -> set[str]:
    nearest = dict.fromkeys(list(starts)[:most])
    queue = deque(nearest)
    while queue and len(nearest) < most:
        for name in neighbours.get(queue.popleft(), ()):
            if name not in nearest and len(nearest) < most:
                nearest[name] = None
                queue.append(name)
    return set(nearest)


def _neighbours(graph: Graph) -> Mapping[str, Collection[str]]:
    """Return the neighbours of each node: the nodes that compute its inputs, and those that read its outputs."""
    makers = {output: node.name for node in graph.nodes for output in node.outputs}
    neighbours: dict[str, dict[str, None]] = defaultdict(dict)
    for node in graph.nodes:
        for name in node.inputs:
            if name in makers and makers[name] != node.name:
                neighbours[node.name][makers[name]] = None
                neighbours[makers[name]][node.name] = None
    return neighbours

/* Where boxes go, as numbers only: these functions run in the worker too, and use nothing but dagre and each other.
   A part is {nodes: [[id, width, height, isPill]], edges: [[from, to]]}; laid out it is {width, height,
   nodes: [[id, x, y]], edges: [[from, to, points]]}. */

const PART_GAP = 36;
const RANK_GAP = 34;
const AT_ONCE = 240; // dagre's time grows faster than the graph: beyond this many boxes it gets slices
const SLICE = 120;
const ARRANGING = [layOut, connectedParts, layOutPart, inRows, inSlices, slicesOf, stacked, shift];

/* Lay out each connected piece of each part separately, then arrange the pieces in rows. */
function layOut(parts) {
  return parts.map((part) =>
    inRows(connectedParts(part).map((one) => (one.nodes.length > AT_ONCE ? inSlices(one) : layOutPart(one)))));
}

function connectedParts({ nodes, edges }) {
  const parent = new Map(nodes.map(([id]) => [id, id]));
  const root = (id) => {
    while (parent.get(id) !== id) {
      parent.set(id, parent.get(parent.get(id)));
      id = parent.get(id);
    }
    return id;
  };
  for (const [from, to] of edges) parent.set(root(from), root(to));
  const pieces = new Map();
  const pieceOf = (id) => {
    if (!pieces.has(root(id))) pieces.set(root(id), { nodes: [], edges: [] });
    return pieces.get(root(id));
  };
  for (const node of nodes) pieceOf(node[0]).nodes.push(node);
  for (const edge of edges) pieceOf(edge[0]).edges.push(edge);
  return [...pieces.values()];
}

function layOutPart({ nodes, edges }) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: RANK_GAP, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const [id, width, height] of nodes) graph.setNode(id, { width, height });
  for (const [from, to] of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    width,
    height,
    nodes: nodes.map(([id]) => [id, graph.node(id).x, graph.node(id).y]),
    edges: edges.map(([from, to]) => [from, to, graph.edge(from, to).points.map(({ x, y }) => [x, y])]),
  };
}

function shift({ nodes, edges }, dx, dy) {
  return {
    nodes: nodes.map(([id, x, y]) => [id, x + dx, y + dy]),
    edges: edges.map(([from, to, points]) => [from, to, points.map(([x, y]) => [x + dx, y + dy])]),
  };
}

/* Set pieces side by side, and below where the row is full. */
function inRows(pieces) {
  const area = pieces.reduce((sum, { width, height }) => sum + (width + PART_GAP) * (height + PART_GAP), 0);
  const widest = Math.max(Math.sqrt(area) * 1.2, ...pieces.map(({ width }) => width));
  const made = { width: 0, height: 0, nodes: [], edges: [] };
  let [left, top, tall] = [0, 0, 0];
  for (const piece of pieces) {
    if (left > 0 && left + piece.width > widest + 1) [left, top, tall] = [0, top + tall + PART_GAP, 0];
    const { nodes, edges } = shift(piece, left, top);
    made.nodes.push(...nodes);
    made.edges.push(...edges);
    made.width = Math.max(made.width, left + piece.width);
    made.height = Math.max(made.height, top + piece.height);
    left += piece.width + PART_GAP;
    tall = Math.max(tall, piece.height);
  }
  return made;
}

/* Lay out a long piece slice by slice in the order of execution, and draw the edges between slices directly. */
function inSlices({ nodes, edges }) {
  const sliceOf = slicesOf(nodes, edges);
  const count = Math.max(...sliceOf.values()) + 1;
  const slices = Array.from({ length: count }, () => ({ nodes: [], edges: [] }));
  for (const node of nodes) slices[sliceOf.get(node[0])].nodes.push(node);
  const between = [];
  for (const edge of edges) {
    const inside = sliceOf.get(edge[0]) === sliceOf.get(edge[1]);
    (inside ? slices[sliceOf.get(edge[0])].edges : between).push(edge);
  }
  const heights = new Map(nodes.map(([id, , height]) => [id, height]));
  return stacked(slices.filter((slice) => slice.nodes.length > 0).map(layOutPart), between, heights);
}

/* The slice of each box; a pill is in the slice of a node that it is connected to. */
function slicesOf(nodes, edges) {
  const sliceOf = new Map();
  nodes.filter(([, , , isPill]) => !isPill).forEach(([id], index) => sliceOf.set(id, Math.floor(index / SLICE)));
  const nodesOnly = new Set(sliceOf.keys());
  for (const [from, to] of edges) {
    if (!nodesOnly.has(from) && !sliceOf.has(from)) sliceOf.set(from, sliceOf.get(to));
    if (!nodesOnly.has(to) && !sliceOf.has(to)) sliceOf.set(to, sliceOf.get(from));
  }
  return sliceOf;
}

/* Stack slices in columns, each shifted sideways to where its edges come from. */
function stacked(slices, between, heights) {
  const into = new Map();
  for (const [from, to] of between) into.set(to, [...(into.get(to) || []), from]);
  const area = slices.reduce((sum, { width, height }) => sum + (width + 3 * PART_GAP) * height, 0);
  const tallest = Math.max(Math.sqrt(area), ...slices.map(({ height }) => height));
  const made = { width: 0, height: 0, nodes: [], edges: [] };
  let placed = new Map(); // in this column
  const everywhere = new Map();
  let [left, top] = [0, 0];
  for (const slice of slices) {
    if (top > 0 && top + slice.height > tallest) {
      [left, top, placed] = [made.width + 3 * PART_GAP, 0, new Map()];
    }
    const moves = slice.nodes.flatMap(([id, x]) =>
      (into.get(id) || []).filter((from) => placed.has(from)).map((from) => placed.get(from) - x));
    const meant = moves.reduce((sum, move) => sum + move, 0) / Math.max(1, moves.length);
    const dx = Math.max(left, meant);
    const { nodes, edges } = shift(slice, dx, top);
    made.nodes.push(...nodes);
    made.edges.push(...edges);
    for (const [id, x, y] of nodes) {
      placed.set(id, x);
      everywhere.set(id, [x, y]);
    }
    top += slice.height + RANK_GAP - 16;
    made.width = Math.max(made.width, dx + slice.width);
    made.height = Math.max(made.height, top);
  }
  for (const [from, to] of between) {
    const [[x, y], [tx, ty]] = [everywhere.get(from), everywhere.get(to)];
    const [start, end] = [y + heights.get(from) / 2, ty - heights.get(to) / 2];
    made.edges.push([from, to, [[x, start], [x, start + 14], [tx, end - 14], [tx, end]]]);
  }
  return made;
}

/* The graphs of both sides as objects: a node knows its neighbours, its counterparts and the kernels around it. */

const KINDS = ["", "minor", "same", "group", "replaced", "only"];
const SIDES = ["a", "b"];
const PHASES = ["forward", "backward", "optimizer"];

function readModel(data) {
  const model = { texts: data.texts, sides: data.sides, drift: data.drift, graphs: {}, pairs: [], nodes: new Map() };
  for (const side of SIDES) {
    model.graphs[side] = data.graphs[side].map((graph) => readGraph(model, side, graph));
    for (const graph of model.graphs[side]) linkCovers(model, graph);
  }
  for (const pair of data.pairs) linkPair(model, pair);
  for (const node of model.nodes.values()) node.kind = kindOf(node);
  model.phases = phasesOf(model);
  return model;
}

function placeKey(side, graph, name) {
  return `${side}\n${graph}\n${name}`;
}

function readGraph(model, side, record) {
  const graph = {
    side,
    record,
    name: record.name,
    after: record.stage === "post",
    values: new Map(Object.entries(record.values || {})),
    inputs: new Set(record.inputs || []),
    outputs: new Set(record.outputs || []),
    nodes: [],
  };
  graph.nodes = record.nodes.map((node) => readNode(model, graph, node));
  linkNeighbours(graph);
  return graph;
}

function readNode(model, graph, record) {
  const node = {
    key: placeKey(graph.side, graph.name, record.name),
    graph,
    record,
    side: graph.side,
    name: record.name,
    op: record.op,
    phase: record.phase || graph.record.phase.split("+")[0] || "other",
    before: new Set(),
    after: new Set(),
    takes: [], // {value, maker}: maker is null where the value comes from outside
    covers: [],
    coveredBy: [],
    pairs: [],
    mark: record.mark || null,
    drift: Object.hasOwn(model.drift, record.module || "") ? model.drift[record.module] : null, // [score, level]
    kind: "",
  };
  model.nodes.set(node.key, node);
  return node;
}

function linkNeighbours(graph) {
  const makers = new Map();
  for (const node of graph.nodes) {
    for (const value of node.record.inputs || []) {
      const maker = makers.get(value) || null;
      node.takes.push({ value, maker });
      if (maker !== null) {
        node.before.add(maker);
        maker.after.add(node);
      }
    }
    for (const value of node.record.outputs || []) makers.set(value, node);
  }
}

function linkCovers(model, graph) {
  for (const node of graph.nodes) {
    for (const name of node.record.covers || []) {
      const covered = model.nodes.get(placeKey(graph.side, graph.record.pre || "", name));
      if (covered === undefined) continue;
      node.covers.push(covered);
      covered.coveredBy.push(node);
    }
  }
}

function linkPair(model, record) {
  const find = (side) =>
    record[side].map(([graph, name]) => model.nodes.get(placeKey(side, graph, name))).filter(Boolean);
  const pair = { record, kind: pairKind(record), a: find("a"), b: find("b") };
  model.pairs.push(pair);
  for (const node of [...pair.a, ...pair.b]) node.pairs.push(pair);
}

/* An op on one side only that changes no number by itself (a view, a detach, a fill) does not count as a difference. */
function pairKind({ kind, minor }) {
  if (kind.startsWith("only")) return minor ? "minor" : "only";
  return minor ? "same" : kind;
}

/* A kernel differs as much as the most different node in it; a kernel of a single op differs as that op does. */
function kindOf(node) {
  const itself = node.covers.filter((one) => one.op === node.op);
  const pairs = [node, ...(itself.length > 0 ? itself : node.covers)].flatMap((one) => one.pairs);
  return pairs.reduce((worst, pair) => (KINDS.indexOf(pair.kind) > KINDS.indexOf(worst) ? pair.kind : worst), "");
}

function differs(node) {
  return KINDS.indexOf(node.kind) > KINDS.indexOf("same");
}

/* A kernel is marked when a node in it is. */
function markOf(node) {
  return node.mark || node.covers.map((one) => one.mark).find(Boolean) || null;
}

function phasesOf(model) {
  const found = new Set([...model.nodes.values()].map((node) => node.phase));
  return [...PHASES.filter((phase) => found.has(phase)), ...[...found].filter((one) => !PHASES.includes(one))];
}

/* All nodes that do the same work as these nodes, on both sides and at both stages, including themselves. */
function relatives(nodes) {
  const work = nodes.flatMap((node) => [node, ...node.covers]);
  const paired = work.flatMap((node) => node.pairs).flatMap((pair) => [...pair.a, ...pair.b]);
  const all = new Set([...work, ...paired]);
  for (const node of [...all]) for (const kernel of node.coveredBy) all.add(kernel);
  return all;
}

function graphsAt(model, side, after) {
  return model.graphs[side].filter((graph) => graph.after === after);
}

/* The nodes of a phase at one stage, graph by graph, in the order of execution. */
function nodesAt(model, side, after, phase) {
  return graphsAt(model, side, after).flatMap((graph) => graph.nodes.filter((node) => node.phase === phase));
}

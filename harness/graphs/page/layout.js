/* The input of the layout, and the web worker that computes it, so that a large graph does not freeze the page. */

const FEW = 60; // up to here an input that several nodes take is drawn once

/* The boxes and edges of one graph's visible nodes. */
function boxesOf(graph, nodes, withValues) {
  const shown = new Set(nodes);
  const boxes = new Map(nodes.map((node) => [node.key, nodeBox(node)]));
  const edges = new Map();
  const join = (from, to, kind) => edges.set(`${from}\r${to}`, { from, to, kind });
  for (const node of nodes) {
    for (const { value, maker } of node.takes) {
      if (shown.has(maker)) join(maker.key, node.key, "data");
      else if (maker === null && withValues) {
        const id = `in\r${graph.name}\r${value}${nodes.length > FEW ? `\r${node.key}` : ""}`;
        if (!boxes.has(id)) boxes.set(id, valuePill("input", id, graph, value));
        join(id, node.key, "value");
      }
    }
    for (const value of withValues ? node.record.outputs || [] : []) {
      if (!graph.outputs.has(value)) continue;
      const id = `out\r${node.key}\r${value}`;
      boxes.set(id, valuePill("output", id, graph, value));
      join(node.key, id, "value");
    }
    addHidden(node, shown, boxes, join);
  }
  return { graph, boxes, edges: [...edges.values()] };
}

/* Pills for the neighbours of a node that are not drawn; clicking one draws them. */
function addHidden(node, shown, boxes, join) {
  for (const [direction, neighbours] of [["before", node.before], ["after", node.after]]) {
    const hidden = [...neighbours].filter((one) => !shown.has(one));
    if (hidden.length === 0) continue;
    const id = `hidden\r${direction}\r${node.key}`;
    const text = hidden.length === 1 ? `… ${hidden[0].op}` : `… ${hidden.length} more`;
    boxes.set(id, pillBox("hidden", id, [text], { reveals: hidden }));
    if (direction === "before") join(id, node.key, "hidden");
    else join(node.key, id, "hidden");
  }
}

/* Lays out one pane's drawings; a new request cancels the previous one. */
class LayoutWorker {
  constructor() {
    this.worker = null;
    this.url = null;
  }

  cancel() {
    if (this.worker !== null) this.worker.terminate();
    this.worker = null;
  }

  request(parts, done) {
    this.cancel();
    const sent = parts.map(({ boxes, edges }) => ({
      nodes: [...boxes.values()].map(({ id, width, height, kind }) => [id, width, height, kind !== "node"]),
      edges: edges.map(({ from, to }) => [from, to]),
    }));
    if (sent.reduce((sum, { nodes }) => sum + nodes.length, 0) <= FEW) {
      done(layOut(sent));
      return;
    }
    const here = () => setTimeout(() => done(layOut(sent)), 0);
    try {
      this.worker = this.start();
    } catch {
      here();
      return;
    }
    this.worker.onmessage = ({ data }) => {
      this.cancel();
      done(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.cancel();
      here();
    };
    this.worker.postMessage(sent);
  }

  start() {
    if (this.url === null) {
      const library = document.getElementById("dagre").textContent;
      const constants = Object.entries({ PART_GAP, RANK_GAP, AT_ONCE, SLICE });
      const source = [
        library,
        ...constants.map(([name, value]) => `const ${name} = ${value};`),
        ...ARRANGING,
        "onmessage = ({ data }) => postMessage(layOut(data));",
      ].join("\n");
      this.url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    }
    return new Worker(this.url);
  }
}

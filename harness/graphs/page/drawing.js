/* Laid out boxes and edges as SVG. Text from the data is inserted only as text nodes. */

const SVG = "http://www.w3.org/2000/svg";
const HEADER = 34;
const GRAPH_GAP = 44;
const FRAME_TITLE = "600 12px system-ui, sans-serif";
const WIDEST_TITLE = 460; // in a narrower drawing; a wide one leaves more room

function draw(name, attributes = {}, children = []) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/* All drawings of a pane, stacked. Returns the element, its size and the position of each box. */
function drawing(parts, laid) {
  const several = parts.length > 1;
  const edges = draw("g", { class: "edges" });
  const boxes = draw("g", { class: "boxes" });
  const frames = draw("g", { class: "frames" });
  const places = new Map();
  const widest = Math.max(0, ...laid.map((one) => one.width));
  const room = Math.max(widest, WIDEST_TITLE);
  const headings = several ? parts.map(({ graph }) => fitted(frameText(graph, basename), FRAME_TITLE, room)) : [];
  const width = Math.max(widest, ...headings.map((text) => Math.ceil(widthOf(text, FRAME_TITLE))));
  let top = 0;
  parts.forEach((part, index) => {
    const { height, nodes, edges: lines } = laid[index];
    const above = several ? HEADER : 0;
    if (several) frames.append(graphFrame(part.graph, headings[index], top, width, height + HEADER));
    const dx = (width - laid[index].width) / 2;
    const kinds = new Map(part.edges.map((edge) => [`${edge.from}\r${edge.to}`, edge.kind]));
    for (const [from, to, points] of lines) {
      edges.append(edgePath(from, to, points, dx, top + above, kinds.get(`${from}\r${to}`)));
    }
    for (const [id, x, y] of nodes) {
      const box = part.boxes.get(id);
      const place = { x: x + dx, y: y + top + above, width: box.width, height: box.height };
      places.set(id, place);
      boxes.append(box.kind === "node" ? nodeElement(box, place) : pillElement(box, place));
    }
    top += height + above + GRAPH_GAP;
  });
  const element = draw("g", { class: "drawing" }, [frames, edges, boxes]);
  return { element, places, width, height: Math.max(0, top - GRAPH_GAP) };
}

/* The name of a graph and why it ends; `place` writes where. */
function frameText({ name, record: { cut } }, place) {
  return cut ? `${name}  ends at ${[cut.reason, cut.op, place(cut.source || "")].filter(Boolean).join(" ")}` : name;
}

function basename(source) {
  return source.split(/[\\/]/).pop();
}

function graphFrame(graph, heading, top, width, height) {
  return draw("g", {}, [
    draw("title", {}, [frameText(graph, (source) => source)]),
    draw("rect", { class: "frame", x: -14, y: top - 2, width: width + 28, height: height + 12, rx: 10 }),
    draw("text", { class: "frame-title", x: 0, y: top + 18 }, [heading]),
  ]);
}

function edgePath(from, to, points, dx, dy, kind) {
  const [first, ...rest] = points.map(([x, y]) => [round(x + dx), round(y + dy)]);
  let path = `M${first}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1];
    if (next === undefined) path += ` L${point}`;
    else path += ` Q${point} ${[round((point[0] + next[0]) / 2), round((point[1] + next[1]) / 2)]}`;
  });
  const edge = draw("path", { class: `edge ${kind}`, d: path, "marker-end": "url(#arrow)" });
  edge.dataset.from = from;
  edge.dataset.to = to;
  return edge;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

function nodeElement(box, { x, y }) {
  const { node, width, height, titles, lines, word } = box;
  const mark = markOf(node);
  const drifts = node.drift ? `${node.record.module} drifts by at most ${node.drift[0]}` : "";
  const children = [draw("title", {}, [[node.name, word, mark ? mark.label : "", drifts].filter(Boolean).join(" · ")])];
  const ring = { class: "ring", x: -6, y: -6, width: width + 12, height: height + 12, rx: 13 };
  if (mark) children.push(draw("rect", ring));
  children.push(draw("rect", { class: "box", width, height, rx: node.graph.after ? 3 : 8 }));
  if (node.drift) children.push(draw("rect", { class: `drift drift-${node.drift[1]}`, x: 3, y: 4, width: 6, height: height - 8, rx: 2 }));
  titles.forEach((text, index) => {
    children.push(draw("text", { class: "title", x: width / 2, y: 22 + 17 * index }, [text]));
  });
  lines.forEach((text, index) => {
    const line = { class: "line", x: width / 2, y: 21 + 17 * titles.length + 15 * index };
    children.push(draw("text", line, [text]));
  });
  if (word) children.push(tag("word", word, width - 8, 0, "end"));
  if (mark) children.push(tag("culprit", `⚠ ${mark.label.replace(/^aten\./, "")}${shareOf(mark)}`, width / 2, height + 6, "middle"));
  const element = draw("g", {
    class: `node kind-${node.kind || "none"}${mark ? " marked" : ""}`,
    transform: `translate(${round(x - width / 2)},${round(y - height / 2)})`,
    tabindex: 0,
    role: "button",
    "aria-label": [node.op, ...lines, word, mark ? `marked: ${mark.label}` : "", drifts].filter(Boolean).join(", "),
  }, children);
  element.dataset.key = node.key;
  element.dataset.name = node.name;
  return element;
}

/* Its share of the drift, where known. */
function shareOf(mark) {
  const share = mark.numbers.find(([name]) => name === "share");
  return share ? `, ${Math.round(100 * share[1])} %` : "";
}

/* A small label that sits on the border of a box. */
function tag(kind, text, x, y, anchor) {
  const shown = fitted(text, TAG, 150);
  const width = widthOf(shown, TAG) + 12;
  const left = anchor === "end" ? x - width : x - width / 2;
  return draw("g", { class: `tag ${kind}`, transform: `translate(${round(left)},${y - 8})` }, [
    draw("rect", { width, height: 16, rx: 8 }),
    draw("text", { x: width / 2, y: 11.5 }, [shown]),
  ]);
}

function pillElement(box, { x, y }) {
  const { width, height, kind, lines } = box;
  const element = draw("g", {
    class: `pill ${kind}`,
    transform: `translate(${round(x - width / 2)},${round(y - height / 2)})`,
  }, [
    draw("title", {}, [kind === "hidden" ? "show these nodes" : `${kind}: ${box.whole}`]),
    draw("rect", { width, height, rx: Math.min(14, height / 2) }),
    ...lines.map((text, index) => draw("text", { x: width / 2, y: 15 + 14 * index }, [text])),
  ]);
  if (kind === "hidden") {
    element.setAttribute("tabindex", 0);
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", `show ${box.reveals.length} more`);
  }
  element.dataset.pill = box.id;
  return element;
}

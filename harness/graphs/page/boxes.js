/* The text in the box of a node, and the size of the box. */

const TITLE = "600 13px system-ui, sans-serif";
const LINE = "11px system-ui, sans-serif";
const TAG = "600 10px system-ui, sans-serif";
const WIDEST = 230;
const PADDING = 11;

const ruler = document.createElement("canvas").getContext("2d");
const measured = new Map();

function widthOf(text, font) {
  const key = `${font}\n${text}`;
  if (!measured.has(key)) {
    ruler.font = font;
    measured.set(key, ruler.measureText(text).width);
  }
  return measured.get(key);
}

/* Cut out the middle of a text that is too wide. */
function fitted(text, font, widest = WIDEST) {
  if (widthOf(text, font) <= widest) return text;
  let kept = Math.min(text.length - 1, Math.ceil(widest / 4));
  const cut = () => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  while (kept > 2 && widthOf(cut(), font) > widest) kept -= 1;
  return cut();
}

/* Break a long kernel name into two lines, at an underscore. */
function titleLines(text) {
  if (widthOf(text, TITLE) <= WIDEST) return [text];
  const breaks = [...text.matchAll(/_/g)].map((match) => match.index + 1);
  const half = text.length / 2;
  const at = breaks.sort((one, other) => Math.abs(one - half) - Math.abs(other - half))[0];
  return at === undefined
    ? [fitted(text, TITLE)]
    : [fitted(text.slice(0, at), TITLE), fitted(text.slice(at), TITLE)];
}

function shapeText(value) {
  if (value === undefined) return "";
  const shape = value.shape === undefined ? "" : value.shape.length === 0 ? "scalar" : value.shape.join("×");
  return [shape, value.dtype].filter(Boolean).join(" ");
}

function outputText(node) {
  const outputs = node.record.outputs || [];
  const texts = outputs.map((name) => shapeText(node.graph.values.get(name))).filter(Boolean);
  return texts.length > 1 ? `${texts[0]}, +${texts.length - 1}` : texts[0] || "";
}

function moduleText(node) {
  return node.record.module === undefined ? "" : node.record.module || "(root)";
}

function opsInside(node) {
  return (node.record.body || []).map((one) => one.op);
}

function nodeBox(node) {
  const { original = "" } = node.record;
  const inside = opsInside(node);
  const from = original.split(".")[1] || original;
  const lines = [
    inside.length > 0 ? `${inside.length} ops: ${inside.join(", ")}` : "",
    [moduleText(node), from && from !== node.op ? `from ${from}` : ""].filter(Boolean).join(" · "),
    outputText(node),
  ].filter(Boolean);
  return sized({ kind: "node", id: node.key, node, titles: titleLines(node.op), lines, word: kindWord(node) });
}

/* The text of the label on the box's border; empty where both sides are the same. */
function kindWord(node) {
  return { group: "group", replaced: "replaced", only: `only ${node.side.toUpperCase()}` }[node.kind] || "";
}

/* The label takes less than half of the border, so that arrows reach the middle. */
function sized(box) {
  const lines = box.lines.map((line) => fitted(line, LINE));
  const widths = [...box.titles.map((one) => widthOf(one, TITLE)), ...lines.map((one) => widthOf(one, LINE))];
  const least = box.word ? 2 * (widthOf(box.word, TAG) + 12) + 30 : 0;
  const width = Math.max(96, Math.ceil(least), Math.ceil(Math.max(...widths)) + 2 * PADDING);
  return { ...box, lines, width, height: 16 + 17 * box.titles.length + 15 * lines.length };
}

/* A pill: an input or output of the graph, or the neighbours that are not drawn. */
function pillBox(kind, id, texts, more = {}) {
  const lines = texts.filter(Boolean).map((text) => fitted(text, LINE));
  const width = Math.ceil(Math.max(...lines.map((line) => widthOf(line, LINE)))) + 22;
  return { kind, id, lines, whole: texts.join(" "), width, height: 8 + 14 * lines.length, ...more };
}

function valuePill(kind, id, graph, name) {
  const value = graph.values.get(name);
  return pillBox(kind, id, [(value && value.binding) || name, shapeText(value)]);
}

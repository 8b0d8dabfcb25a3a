/* The differences of a phase as buttons: each click shows the next place of that difference. */

const FIRST_CHIPS = 14;

/* Pairs with the same text, as one difference with several places. */
function differencesOf(model, phase) {
  const found = new Map();
  for (const pair of model.pairs) {
    const nodes = [...pair.a, ...pair.b];
    if (KINDS.indexOf(pair.kind) <= KINDS.indexOf("same") || nodes.length === 0 || nodes[0].phase !== phase) continue;
    const text = differenceText(pair);
    if (!found.has(text)) found.set(text, { text, kind: pair.kind, places: [], marked: false });
    const difference = found.get(text);
    difference.places.push(nodes);
    difference.marked = difference.marked || nodes.some((node) => node.mark !== null);
  }
  const rank = ({ kind, marked }) => (marked ? 10 : 0) + KINDS.indexOf(kind);
  return [...found.values()].sort((one, other) => rank(other) - rank(one));
}

function differenceText(pair) {
  const ops = (nodes) => nodes.map((node) => node.op).join(", ");
  if (pair.a.length === 0) return `only B: ${ops(pair.b)}`;
  if (pair.b.length === 0) return `only A: ${ops(pair.a)}`;
  return `${ops(pair.a)} ↔ ${ops(pair.b)}`;
}

class Differences {
  constructor(model, page) {
    this.model = model;
    this.page = page;
    this.root = document.getElementById("differences");
    this.all = false;
  }

  render() {
    const found = differencesOf(this.model, this.page.phase);
    const shown = this.all ? found : found.slice(0, FIRST_CHIPS);
    const label = make("span", { className: "quiet" });
    label.textContent = found.length === 0 ? "no differences in this phase" : "differences";
    this.root.replaceChildren(label, ...shown.map((one) => this.chip(one)));
    if (shown.length < found.length) this.root.append(this.rest(found.length - shown.length));
  }

  chip({ text, kind, places, marked }) {
    const chip = make("button", { type: "button", className: `chip kind-${kind}${marked ? " marked" : ""}` });
    let next = 0;
    const count = places.length > 1 ? ` ×${places.length}` : "";
    chip.textContent = `${marked ? "⚠ " : ""}${text}${count}`;
    chip.title = text;
    chip.addEventListener("click", () => {
      const nodes = places[next];
      if (places.length > 1) chip.textContent = `${marked ? "⚠ " : ""}${text} ${next + 1}/${places.length}`;
      next = (next + 1) % places.length;
      this.page.select(nodes.find((node) => node.mark !== null) || nodes[0]);
    });
    return chip;
  }

  rest(count) {
    const button = make("button", { type: "button", className: "chip", textContent: `${count} more …` });
    button.addEventListener("click", () => {
      this.all = true;
      this.render();
    });
    return button;
  }
}

/* The details of the selected node or graph. Everything from the data is set as text. */

function make(name, properties = {}, children = []) {
  const { data, ...others } = properties;
  const element = Object.assign(document.createElement(name), others);
  for (const [key, value] of Object.entries(data || {})) element.dataset[key] = value;
  element.append(...children);
  return element;
}

class Details {
  constructor(model, page) {
    this.model = model;
    this.page = page;
    this.root = document.getElementById("details");
    this.body = this.root.querySelector(".body");
    this.heading = this.root.querySelector(".heading");
    this.root.querySelector(".close").addEventListener("click", () => page.select(null));
  }

  close() {
    this.root.hidden = true;
  }

  open(title, kind, columns) {
    this.heading.replaceChildren(...title);
    this.heading.className = `heading kind-${kind || "none"}`;
    this.body.replaceChildren(...columns.map((children) => make("div", { className: "column" }, children)));
    this.body.scrollTop = 0;
    this.root.hidden = false;
  }

  node(node) {
    const { record } = node;
    const named = node.name === node.op ? "" : `${node.name} `;
    const title = [
      make("span", { className: "badge", textContent: node.side.toUpperCase() }),
      make("strong", { textContent: node.op }),
      make("span", { className: "quiet", textContent: `${named}in ${node.graph.name}` }),
    ];
    const facts = [
      ["op", fullOp(record)],
      ["phase", node.phase],
      ["module", moduleText(node)],
      ["source line", record.source],
      ["came from", record.original],
      ["same call as", this.sameGroup(node)],
      ["sequence", record.sequence],
      ["inside", record.body && this.inside(record.body)],
      ["covers", this.chips(node.covers)],
      ["inside kernel", this.chips(node.coveredBy)],
    ];
    this.open(title, node.kind, [
      [...this.mark(node), list(facts)],
      [
        ...this.pairs(node),
        values("inputs", node, record.inputs, record.input_names),
        values("outputs", node, record.outputs, []),
        attributes(record.attributes),
      ],
      [...this.text("generated code", record.code), ...this.text("stack trace", record.stack)],
    ]);
  }

  graph(graph) {
    const { record } = graph;
    const cut = record.cut || {};
    const title = [
      make("span", { className: "badge", textContent: graph.side.toUpperCase() }),
      make("strong", { textContent: graph.name }),
    ];
    const facts = [
      ["phase", record.phase], ["stage", record.stage], ["step", record.step], ["nodes", record.nodes.length],
      ["hash", record.hash], ["compiled in", record.seconds && `${record.seconds.toFixed(2)} s`],
      ["made from", record.pre],
      ["ends at", [cut.reason, cut.op, cut.source].filter(Boolean).join(" ")],
      ["notes", (record.notes || []).join("; ")],
    ];
    const code = (record.code || []).map((number) => this.model.texts[number]).join("");
    this.open(title, "", [
      [list(facts)],
      [values("inputs", { graph }, record.inputs, []), values("outputs", { graph }, record.outputs, [])],
      [...source("generated module", code), ...this.text("stack of the cut", cut.stack)],
    ]);
  }

  sameGroup(node) {
    const { group } = node.record;
    if (!group) return null;
    return this.chips(node.graph.nodes.filter((one) => one !== node && one.record.group === group));
  }

  mark(node) {
    const mark = markOf(node);
    if (mark === null) return [];
    const numbers = mark.numbers.map(([name, value]) => [name, value]);
    return [make("div", { className: "mark" }, [
      make("strong", { textContent: `⚠ ${mark.label}` }),
      make("p", { textContent: mark.reason }),
      list(numbers),
    ])];
  }

  pairs(node) {
    return [...new Set([node, ...node.covers].flatMap((one) => one.pairs))].map((pair) => {
      const { kind, what, by } = pair.record;
      return make("div", { className: `pair kind-${pair.kind}` }, [
        make("div", {}, [make("strong", { textContent: KIND_SENTENCES[kind] || kind }), ` ${what}`]),
        ...SIDES.filter((side) => pair[side].length > 0).map((side) =>
          make("div", { className: "row" }, [
            make("span", { className: "badge", textContent: side.toUpperCase() }), this.chips(pair[side]),
          ])),
        make("div", { className: "quiet", textContent: by ? `paired by ${by}` : "" }),
      ]);
    });
  }

  chips(nodes) {
    if (nodes.length === 0) return null;
    return make("span", { className: "chips" }, nodes.map((node) => {
      const chip = make("button", { type: "button", className: `chip kind-${node.kind || "none"}` });
      chip.textContent = node.name;
      chip.title = [node.name, fullOp(node.record)].join(": ");
      chip.addEventListener("click", () => this.page.select(node));
      return chip;
    }));
  }

  inside(body) {
    return make("ol", { className: "inside" }, body.map((one) =>
      make("li", { textContent: `${one.name} = ${fullOp(one)}(${(one.inputs || []).join(", ")})` })));
  }

  text(title, number) {
    return number === undefined ? [] : source(title, this.model.texts[number]);
  }
}

const KIND_SENTENCES = {
  same: "the same op on both sides:",
  group: "the same work in different pieces:",
  replaced: "another op on the other side:",
  "only-a": "only A has",
  "only-b": "only B has",
};

function fullOp({ domain = "aten", op, overload = "" }) {
  return [domain, op, overload].filter(Boolean).join(".");
}

function source(title, text) {
  return text ? [make("h3", { textContent: title }), make("pre", { textContent: text, tabIndex: 0 })] : [];
}

function list(facts) {
  const given = facts.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return make("dl", {}, given.flatMap(([name, value]) => [
    make("dt", { textContent: name }),
    make("dd", {}, value instanceof Node ? [value] : breakable(numberText(value))),
  ]));
}

/* Let a path break after a slash. */
function breakable(text) {
  return text.split(/(?<=\/)/).flatMap((part) => [part, make("wbr")]);
}

function numberText(value) {
  const long = typeof value === "number" && !Number.isInteger(value);
  return long ? String(Number(value.toPrecision(4))) : String(value);
}

function values(title, { graph }, names = [], labels = []) {
  if (names.length === 0) return make("div");
  const rows = names.map((name, index) => {
    const value = graph.values.get(name);
    const cells = [...(labels.length > 0 ? [labels[index] || ""] : []), name, shapeText(value), (value && value.binding) || ""];
    return make("tr", {}, cells.map((text) => make("td", { textContent: text })));
  });
  return make("div", {}, [make("h3", { textContent: title }), make("table", { className: "values" }, rows)]);
}

function attributes(given = {}) {
  const rows = Object.entries(given).map(([name, value]) => [name, JSON.stringify(value)]);
  if (rows.length === 0) return make("div");
  return make("div", {}, [make("h3", { textContent: "attributes" }), list(rows)]);
}

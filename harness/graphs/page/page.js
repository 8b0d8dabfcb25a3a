/* The page: two connected panes, the toolbar, and the selection. */

class Page {
  constructor(data) {
    this.model = readModel(data);
    this.selected = null;
    this.next = 0;
    this.work = document.getElementById("work");
    this.phaseSelect = document.getElementById("phase");
    this.search = document.getElementById("search");
    this.found = document.getElementById("found");
    this.only = document.getElementById("only");
    this.values = document.getElementById("values");
    this.panes = SIDES.map((side) => new Pane(this.model, side, this));
    this.details = new Details(this.model, this);
    this.differences = new Differences(this.model, this);
    fillSelect(this.phaseSelect, this.model.phases.map((phase) => [phase, phase]));
    this.phaseSelect.value = this.firstPhase() || "";
    this.listen();
    this.settle();
    this.restart();
  }

  get phase() {
    return this.phaseSelect.value;
  }

  get onlyDifferences() {
    return this.only.checked;
  }

  get withValues() {
    return this.values.checked;
  }

  /* The phase of the culprit, else the first that differs. */
  firstPhase() {
    const nodes = [...this.model.nodes.values()].filter((node) => !node.graph.after);
    const first = nodes.find((node) => node.mark !== null);
    const different = this.model.phases.find((phase) => nodes.some((one) => one.phase === phase && differs(one)));
    return first ? first.phase : different || this.model.phases[0];
  }

  other(pane) {
    return this.panes.find((one) => one !== pane);
  }

  listen() {
    this.phaseSelect.addEventListener("change", () => {
      this.clear();
      this.restart();
    });
    for (const box of [this.only, this.values]) {
      box.addEventListener("change", () => {
        for (const pane of this.panes) {
          pane.drawn = false;
          pane.render();
        }
      });
    }
    window.addEventListener("resize", () => this.settle());
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
    });
    for (const button of document.querySelectorAll("[data-pair]")) {
      button.addEventListener("click", () => this.goToPair(Number(button.dataset.pair)));
    }
    for (const button of document.querySelectorAll("[data-place]")) {
      button.addEventListener("click", () => this.goTo(JSON.parse(button.dataset.place)));
    }
    for (const button of document.querySelectorAll("[data-graph]")) {
      button.addEventListener("click", () => this.showGraph(...JSON.parse(button.dataset.graph)));
    }
  }

  /* Redraw a pane from the start, or both panes. */
  restart(one = null, keepGraph = false) {
    if (one === null) this.differences.render();
    for (const pane of one === null ? this.panes : [one]) pane.restart(this.other(pane).nodes(), keepGraph);
    if (this.selected !== null) this.follow();
  }

  select(node) {
    this.selected = node;
    if (node === null) {
      this.details.close();
      for (const pane of this.panes) this.highlight(pane);
      return;
    }
    this.details.node(node);
    this.bringUp();
    const pane = this.panes.find((one) => one.side === node.side);
    const stage = node.graph.after ? "post" : "pre";
    const samePhase = node.phase === this.phase;
    const sameStage = pane.stage.value === stage;
    this.phaseSelect.value = node.phase;
    pane.stage.value = stage;
    if (!samePhase) this.restart();
    else if (!sameStage) this.restart(pane);
    else this.follow();
  }

  /* Highlight the selection and its relatives, and bring them into view in both panes, at the stage of each. */
  follow() {
    const others = [...relatives([this.selected])].filter((one) => one !== this.selected);
    for (const pane of this.panes) {
      this.highlight(pane);
      pane.show([this.selected, ...others]);
    }
  }

  /* Panes and details take what the answers leave of the window, all of it where the answers are long. */
  settle() {
    const above = document.querySelector("header").offsetHeight;
    const left = window.innerHeight - (above < window.innerHeight * 0.35 ? above : 0);
    this.work.style.height = `${Math.max(560, left - 4)}px`;
  }

  /* The panes and the details fit into the window together: scroll there when they are not all in it. */
  bringUp() {
    const { top, bottom } = this.work.getBoundingClientRect();
    if (top < -4 || bottom > window.innerHeight + 4) this.work.scrollIntoView({ block: "start" });
  }

  highlight(pane) {
    const related = this.selected === null ? new Set() : relatives([this.selected]);
    const matches = this.matches();
    pane.highlight({ selected: this.selected, related, matches });
    this.count(matches);
  }

  clear() {
    this.search.value = "";
    this.find();
    this.select(null);
  }

  /* The search's matches in both panes, drawn or not; null without a search. */
  matches() {
    const asked = this.search.value.trim().toLowerCase();
    if (asked === "") return null;
    return new Set(this.panes.flatMap((pane) => pane.nodes()).filter((node) => answers(node, asked)));
  }

  find() {
    this.next = 0;
    for (const pane of this.panes) this.highlight(pane);
  }

  /* Show how many matches are drawn in each pane, and how many are not. */
  count(matches) {
    const drawn = this.panes.map((pane) => pane.drawnOf(matches || []).length);
    const hidden = matches === null ? 0 : matches.size - drawn[0] - drawn[1];
    const rest = hidden > 0 ? `, ${hidden} hidden` : "";
    if (matches === null) this.found.textContent = "";
    else this.found.textContent = matches.size === 0 ? "no hits" : `${drawn[0]} in A, ${drawn[1]} in B${rest}`;
    this.found.title = hidden > 0 ? "press Enter to go to the next hit; hidden hits are drawn" : "";
  }

  nextMatch() {
    const matches = [...(this.matches() || [])];
    if (matches.length === 0) return;
    this.select(matches[this.next % matches.length]);
    this.next += 1;
  }

  goToPair(number) {
    const pair = this.model.pairs[number];
    const [node] = [...pair.a, ...pair.b];
    if (node) this.select(node);
  }

  goTo([side, graph, name]) {
    const node = this.model.nodes.get(placeKey(side, graph, name));
    if (node) this.select(node);
  }

  /* The next of the nodes that an investigation found guilty of this op: "show in the graphs" of a report. */
  goToCulprit(op, module) {
    const marked = this.panes.flatMap((pane) => this.model.graphs[pane.side]).flatMap((graph) => graph.nodes)
      .filter((node) => !node.graph.after && node.mark !== null && node.mark.label === op);
    const node = marked.find((one) => one.record.module === module) || marked[0];
    if (node) this.select(node);
    return node !== undefined;
  }

  showGraph(side, name) {
    this.select(null);
    const graph = this.model.graphs[side].find((one) => one.name === name);
    if (graph) this.details.graph(graph);
    this.bringUp();
  }
}

function answers(node, asked) {
  const { module = "", original = "" } = node.record;
  return [fullOp(node.record), node.name, module, original].some((text) => text.toLowerCase().includes(asked));
}

window.page = new Page(JSON.parse(document.getElementById("data").textContent));

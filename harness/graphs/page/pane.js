/* One side of the page: the nodes that are drawn, and the highlighted nodes among them. */

class Pane {
  constructor(model, side, page) {
    const find = (name) => document.querySelector(`#pane-${side} .${name}`);
    this.model = model;
    this.side = side;
    this.page = page;
    this.stage = find("stage");
    this.graph = find("graph");
    this.status = find("status");
    this.more = find("more");
    this.whole = find("whole");
    this.busy = find("busy");
    this.svg = find("canvas");
    this.world = draw("g", { class: "world" });
    this.svg.append(arrowhead(), this.world);
    this.camera = new Camera(this.svg, this.world);
    this.worker = new LayoutWorker();
    this.view = { whole: true, hops: 1, seeds: [], revealed: new Set() };
    this.shown = [];
    this.places = new Map();
    this.elements = new Map();
    this.waiting = [];
    this.drawn = false;
    this.listen(find);
  }

  listen(find) {
    fillSelect(this.stage, [["pre", "pre graph"], ["post", "post graph"]]);
    this.stage.value = "pre";
    for (const option of this.stage.options) {
      option.disabled = graphsAt(this.model, this.side, option.value === "post").length === 0;
    }
    if (this.stage.options[0].disabled && !this.stage.options[1].disabled) this.stage.value = "post";
    this.stage.addEventListener("change", () => this.page.restart(this));
    this.graph.addEventListener("change", () => this.page.restart(this, true));
    this.more.addEventListener("click", () => this.expand());
    this.whole.addEventListener("click", () => this.toggleWhole());
    find("fit").addEventListener("click", () => this.camera.fit());
    find("closer").addEventListener("click", () => this.camera.zoom(1.3));
    find("farther").addEventListener("click", () => this.camera.zoom(1 / 1.3));
    this.svg.addEventListener("click", (event) => this.onClick(event));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.svg.addEventListener("focusin", (event) => this.onFocus(event));
  }

  get after() {
    return this.stage.value === "post";
  }

  /* The nodes that this pane could draw. */
  nodes() {
    const nodes = nodesAt(this.model, this.side, this.after, this.page.phase);
    return this.graph.value === "" ? nodes : nodes.filter((node) => node.graph.name === this.graph.value);
  }

  /* Begin again, with the graphs of this phase and stage. */
  restart(others, keepGraph = false) {
    if (!keepGraph) this.listGraphs();
    const nodes = this.nodes();
    const seeds = firstSeeds(nodes, others);
    const whole = nodes.length <= MANY;
    this.view = { whole, hops: whole ? 1 : firstHops(seeds, new Set(nodes)), seeds, revealed: new Set() };
    this.drawn = false;
    this.render();
  }

  listGraphs() {
    const nodes = nodesAt(this.model, this.side, this.after, this.page.phase);
    const names = [...new Set(nodes.map((node) => node.graph.name))];
    fillSelect(this.graph, [["", `all ${names.length} graphs`], ...names.map((name) => [name, name])]);
    this.graph.hidden = names.length < 2;
  }

  expand() {
    const nodes = this.nodes();
    const count = () => visibleNodes(nodes, this.view, this.page.onlyDifferences).length;
    const before = count();
    do this.view.hops += 1;
    while (count() === before && this.view.hops < MANY);
    this.render();
  }

  toggleWhole() {
    if (this.view.whole) this.restart(this.page.other(this).nodes(), true);
    else {
      this.view.whole = true;
      this.drawn = false;
      this.render();
    }
  }

  render() {
    const nodes = this.nodes();
    this.shown = visibleNodes(nodes, this.view, this.page.onlyDifferences);
    const byGraph = new Map();
    for (const node of this.shown) {
      if (!byGraph.has(node.graph)) byGraph.set(node.graph, []);
      byGraph.get(node.graph).push(node);
    }
    const parts = [...byGraph].map(([graph, some]) => boxesOf(graph, some, this.page.withValues));
    this.describe(nodes);
    this.svg.dataset.state = "laying-out";
    this.busy.textContent = `laying out ${this.shown.length} nodes …`;
    this.busy.hidden = false;
    this.worker.request(parts, (laid) => this.put(parts, laid));
  }

  put(parts, laid) {
    const { element, places, width, height } = drawing(parts, laid);
    this.boxes = new Map(parts.flatMap((part) => [...part.boxes]));
    this.places = places;
    this.world.replaceChildren(element);
    this.elements = new Map([...element.querySelectorAll(".node")].map((one) => [one.dataset.key, one]));
    this.camera.size = { width, height };
    this.busy.textContent = this.shown.length > 0 ? "" : this.emptyText();
    this.busy.hidden = this.shown.length > 0;
    this.svg.dataset.state = "drawn";
    if (!this.drawn) this.camera.begin(this.placesOf(relatives(this.view.seeds)));
    this.drawn = true;
    this.page.highlight(this);
    if (this.waiting.length > 0) this.camera.reveal(this.placesOf(this.waiting));
    this.waiting = [];
  }

  emptyText() {
    if (this.nodes().length > 0) return "nothing differs here";
    return `no ${this.after ? "post" : "pre"} graph of the ${this.page.phase} phase`;
  }

  describe(nodes) {
    const some = this.shown.length < nodes.length;
    const [seed] = this.view.seeds;
    const hops = `${this.view.hops} ${this.view.hops === 1 ? "hop" : "hops"}`;
    const around = some && !this.view.whole && seed ? `, ${hops} around ${seed.name}` : "";
    const what = this.after ? "kernels" : "nodes";
    this.status.textContent = `${some ? `${this.shown.length} of ` : ""}${nodes.length} ${what}${around}`;
    this.status.title = this.status.textContent;
    this.more.hidden = this.view.whole || !some;
    this.whole.hidden = nodes.length <= MANY && this.view.whole;
    this.whole.textContent = this.view.whole ? "neighbourhood" : "whole graph";
  }

  /* Those of the nodes that are currently drawn in this pane. */
  drawnOf(nodes) {
    return [...nodes].filter((node) => this.elements.has(node.key));
  }

  placesOf(nodes) {
    return [...nodes].map((node) => this.places.get(node.key)).filter(Boolean);
  }

  /* Bring nodes into view, first drawing those that are not drawn. */
  show(nodes) {
    const here = nodes.filter((node) => node.side === this.side && node.graph.after === this.after);
    const known = () => new Set(this.nodes());
    if (!here.every((node) => known().has(node))) this.graph.value = "";
    const inPane = known();
    const mine = here.filter((node) => inPane.has(node));
    if (mine.length === 0) return;
    if (mine.every((node) => this.elements.has(node.key)) && this.svg.dataset.state === "drawn") {
      this.camera.reveal(this.placesOf(mine));
      return;
    }
    if (!this.view.whole) Object.assign(this.view, { seeds: mine, hops: firstHops(mine, inPane) });
    for (const node of mine) this.view.revealed.add(node);
    this.waiting = mine;
    this.render();
  }

  /* Mark the selected node, its relatives and the matches of a search. */
  highlight({ selected, related, matches }) {
    this.svg.classList.toggle("selecting", selected !== null);
    this.svg.classList.toggle("searching", this.drawnOf(matches || []).length > 0);
    for (const [key, element] of this.elements) {
      const node = this.model.nodes.get(key);
      element.classList.toggle("selected", node === selected);
      element.classList.toggle("related", node !== selected && related.has(node));
      element.classList.toggle("match", matches !== null && matches.has(node));
      element.setAttribute("aria-pressed", node === selected || related.has(node));
    }
    const lit = new Set([...related].map((node) => node.key));
    for (const edge of this.world.querySelectorAll(".edge")) {
      edge.classList.toggle("lit", lit.has(edge.dataset.from) || lit.has(edge.dataset.to));
    }
  }

  onClick(event) {
    if (this.camera.dragged) return;
    const pill = event.target.closest(".pill.hidden");
    const element = event.target.closest(".node");
    if (pill) this.reveal(pill);
    else if (element) this.page.select(this.model.nodes.get(element.dataset.key));
    else this.page.select(null);
  }

  onKey(event) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.camera.dragged = false;
      this.onClick(event);
    } else if (event.key === "+") this.camera.zoom(1.3);
    else if (event.key === "-") this.camera.zoom(1 / 1.3);
    else if (event.key === "0") this.camera.fit();
  }

  onFocus(event) {
    const element = event.target.closest(".node, .pill");
    const place = element && this.places.get(element.dataset.key || element.dataset.pill);
    if (place && element.matches(":focus-visible")) this.camera.reveal([place]);
  }

  reveal(pill) {
    for (const node of this.boxes.get(pill.dataset.pill).reveals) this.view.revealed.add(node);
    this.render();
  }
}

function arrowhead() {
  const marker = draw("marker", {
    id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, orient: "auto",
    markerUnits: "userSpaceOnUse",
  }, [draw("path", { d: "M0,0.6 L8,4 L0,7.4 z" })]);
  return draw("defs", {}, [marker]);
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

/* The part of a drawing that a pane shows: pan by drag, zoom by wheel, and moves that bring boxes into view. */

const CLOSEST = 2.5;
const FARTHEST = 0.01;
const MARGIN = 26;
const READABLE = 0.55;
const FAR = 0.16; // from here on only boxes are drawn, and what differs keeps its strong border
const BUTTONS = 46; // the buttons stand in the lowest strip of a pane

class Camera {
  constructor(svg, world) {
    this.svg = svg;
    this.world = world;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.size = { width: 0, height: 0 };
    this.dragged = false;
    this.seen = { width: svg.clientWidth, height: svg.clientHeight };
    new ResizeObserver(() => this.recentre()).observe(svg);
    svg.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => this.onDown(event));
    svg.addEventListener("scroll", () => svg.scrollTo(0, 0));
  }

  get width() {
    return this.svg.clientWidth;
  }

  get height() {
    return this.svg.clientHeight;
  }

  apply() {
    const { x, y, scale } = this;
    this.svg.classList.toggle("far", scale < FAR);
    this.world.setAttribute("transform", `translate(${x.toFixed(2)},${y.toFixed(2)}) scale(${scale.toFixed(4)})`);
  }

  /* Keep the middle of the view when the pane has changed its size. */
  recentre() {
    const { width, height } = this;
    this.x += (width - this.seen.width) / 2;
    this.y += (height - this.seen.height) / 2;
    this.seen = { width, height };
    this.apply();
  }

  /* Zoom so that this point of the pane stays where it is. */
  zoom(factor, atX = this.width / 2, atY = this.height / 2) {
    const scale = Math.min(CLOSEST, Math.max(FARTHEST, this.scale * factor));
    this.x = atX - ((atX - this.x) * scale) / this.scale;
    this.y = atY - ((atY - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply();
  }

  fit() {
    this.show({ left: 0, top: 0, right: this.size.width, bottom: this.size.height }, 1.15);
  }

  /* Show a rectangle of the drawing in the middle, at most this large. */
  show({ left, top, right, bottom }, largest) {
    this.recentre();
    this.scale = Math.max(FARTHEST, Math.min(largest, this.scaleFor({ left, top, right, bottom })));
    const { width, height } = this.size;
    this.x = this.placed(this.width - 2 * MARGIN, width, left + right);
    this.y = this.placed(this.height - MARGIN - BUTTONS, height, top + bottom);
    this.apply();
  }

  /* The largest scale at which the rectangle fits into the pane. */
  scaleFor({ left, top, right, bottom }) {
    const wide = (this.width - 2 * MARGIN) / Math.max(1, right - left);
    return Math.min(wide, (this.height - MARGIN - BUTTONS) / Math.max(1, bottom - top));
  }

  /* Along one axis: a drawing that fits is centred, a larger one shows the target and no empty space beyond it. */
  placed(room, whole, twiceTarget) {
    const size = whole * this.scale;
    if (size <= room) return MARGIN + (room - size) / 2;
    const wished = MARGIN + room / 2 - (this.scale * twiceTarget) / 2;
    return Math.min(MARGIN, Math.max(MARGIN + room - size, wished));
  }

  /* The whole drawing where that is readable, else these places at a readable size. */
  begin(places) {
    this.fit();
    if (this.scale < READABLE && places.length > 0) this.bring(places, 0.85);
  }

  /* Show the places together where that is readable, else the first of them. */
  bring(places, largest) {
    const all = around(places);
    this.show(this.scaleFor(all) >= READABLE ? all : around(places.slice(0, 1)), largest);
  }

  /* Bring the places into view; nothing moves if they already are. */
  reveal(places) {
    if (places.length === 0) return;
    this.recentre();
    const { left, top, right, bottom } = around(places);
    const inside =
      left * this.scale + this.x >= 8 && right * this.scale + this.x <= this.width - 8 &&
      top * this.scale + this.y >= 8 && bottom * this.scale + this.y <= this.height - MARGIN;
    if (!inside || this.scale < READABLE * 0.6) this.bring(places, Math.max(0.75, Math.min(1, this.scale)));
  }

  onWheel(event) {
    event.preventDefault();
    const { left, top } = this.svg.getBoundingClientRect();
    const pixels = event.deltaMode === 1 ? event.deltaY * 18 : event.deltaY;
    this.zoom(Math.exp(-pixels * 0.0016), event.clientX - left, event.clientY - top);
  }

  onDown(event) {
    if (event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY, left: this.x, top: this.y };
    this.dragged = false;
    const move = (now) => {
      const [dx, dy] = [now.clientX - from.x, now.clientY - from.y];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      if (!this.dragged) this.svg.setPointerCapture(event.pointerId);
      this.dragged = true;
      this.svg.classList.add("dragging");
      this.x = from.left + dx;
      this.y = from.top + dy;
      this.apply();
    };
    const end = () => {
      this.svg.classList.remove("dragging");
      this.svg.removeEventListener("pointermove", move);
      this.svg.removeEventListener("pointerup", end);
      this.svg.removeEventListener("pointercancel", end);
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
  }
}

function around(places) {
  return {
    left: Math.min(...places.map(({ x, width }) => x - width / 2)),
    right: Math.max(...places.map(({ x, width }) => x + width / 2)),
    top: Math.min(...places.map(({ y, height }) => y - height / 2)),
    bottom: Math.max(...places.map(({ y, height }) => y + height / 2)),
  };
}

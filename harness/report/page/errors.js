// The errors of a culprit's sides, a picture each with the same axes: a point for each element that is shown, over an
// argument of the op or over its true result. An element that is pointed at is marked on both sides.
{
  const READABLE = 8; // from this error on small ones would be one line: then the axis is logarithmic on both sides of zero

  function short(value) {
    if (value === null || value === undefined) return "not finite";
    const exponential = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6);
    return exponential ? value.toExponential(3).replace(/\.?0+e\+?/, "e") : Number(value.toPrecision(4)).toString();
  }

  // 0 and some nine powers of ten, up and down; next to large ones 1 would stand on the 0.
  function decades(high) {
    const highest = Math.floor(Math.log10(high));
    const every = Math.ceil(highest / 4);
    const up = [];
    for (let power = highest < 3 ? 0 : every; power <= highest; power += every) up.push(10 ** power);
    return [...up.map((one) => -one).reverse(), 0, ...up];
  }

  function points(colour) {
    return (u, series, first, last) => {
      const { ctx, bbox } = u;
      const size = 2.2 * devicePixelRatio;
      const path = new Path2D();
      for (let at = first; at <= last; at++) {
        const error = u.data[series][at];
        if (error === null) continue;
        const x = u.valToPos(u.data[0][at], "x", true), y = u.valToPos(error, "y", true);
        path.moveTo(x + size, y);
        path.arc(x, y, size, 0, 2 * Math.PI);
      }
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left - size, bbox.top, bbox.width + 2 * size, bbox.height);
      ctx.clip();
      ctx.globalAlpha = u.data[0].length > 200 ? 0.55 : 0.9;
      ctx.fillStyle = colour;
      ctx.fill(path);
      ctx.restore();
      return null;
    };
  }

  // Zero, and the half unit on both sides of it within which a correctly rounded result lies.
  function band(u) {
    const { ctx, bbox } = u;
    const [up, zero, down] = [0.5, 0, -0.5].map((error) => Math.round(u.valToPos(error, "y", true)));
    ctx.save();
    ctx.fillStyle = ink("--z2");
    ctx.globalAlpha = 0.5;
    ctx.fillRect(bbox.left, up, bbox.width, Math.max(1, down - up));
    ctx.globalAlpha = 1;
    ctx.fillStyle = ink("--quiet");
    ctx.fillRect(bbox.left, zero, bbox.width, Math.max(1, devicePixelRatio));
    ctx.restore();
  }

  // The element whose point is nearest to the pointer, within a finger's width.
  function nearest(u) {
    const { left, top } = u.cursor;
    let found = null, least = 24 ** 2;
    for (let at = 0; left >= 0 && at < u.data[0].length; at++) {
      const across = u.valToPos(u.data[0][at], "x") - left;
      if (u.data[1][at] === null || across * across >= least) continue;
      const apart = across * across + (u.valToPos(u.data[1][at], "y") - top) ** 2;
      if (apart < least) [found, least] = [at, apart];
    }
    return found;
  }

  function show(figure, shown) {
    const places = [...figure.querySelectorAll(".plot")];
    const choice = figure.querySelector("select");
    const reading = figure.querySelector(".reading");
    const invitation = reading.textContent;
    let plots = [], pointed = null, element = null;

    function read(order) {
      if (element === null) return invitation;
      const at = order[element];
      const values = shown.axes.map(([name, numbers]) => `${name} ${short(numbers[at])}`);
      const errors = shown.errors.map(([name, numbers]) => {
        const error = numbers[at];
        return `${name} ${error > 0 ? "+" : ""}${short(error)}${error === null ? "" : " ULP"}`;
      });
      return `${values.join(", ")}: ${errors.join(", ")}.`;
    }

    function draw() {
      const [name, all] = shown.axes[choice ? Number(choice.value) : 0];
      const order = all.map((_, at) => at).filter((at) => all[at] !== null).sort((p, q) => all[p] - all[q]);
      const [xs, ...sides] = [all, ...shown.errors.map(([, errors]) => errors)].map((values) => order.map((at) => values[at]));
      const drawn = sides.flat().filter((one) => one !== null);
      const largest = Math.max(1, ...drawn.map(Math.abs));
      const wide = largest > READABLE;
      const high = (wide ? 2 : 1.1) * largest; // up and down, so that a lean to one side is seen
      const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") } };
      const values = (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick)));
      const uneven = { splits: () => decades(high), filter: (_, ticks) => ticks };
      plots.forEach((one) => one.destroy());
      pointed = element = null;
      reading.textContent = invitation;
      plots = places.map((place, side) => {
        const label = shown.errors[side][0];
        const known = data.rows.findIndex((row) => row.label === label);
        const colours = COLOURS[dark.matches ? "dark" : "light"];
        const colour = colours[(known < 0 ? side : known) % colours.length];
        const options = {
          width: place.clientWidth,
          height: 250,
          legend: { show: false },
          scales: { x: { time: false }, y: { distr: wide ? 4 : 1, asinh: 1, range: [-high, high] } },
          axes: [
            { ...axis, label: name, values, space: 60 },
            { ...axis, label: "error in ULP", size: 66, values, ...(wide ? uneven : {}) },
          ],
          cursor: {
            dataIdx: (u) => (u === pointed ? nearest(u) : element),
            points: { size: 10, width: 2, stroke: ink("--ink"), fill: colour },
            x: false,
            y: false,
          },
          series: [{}, { label, stroke: colour, paths: points(colour), points: { show: false } }],
          hooks: {
            drawAxes: [band],
            setCursor: [(u) => {
              if (u !== pointed) return;
              element = u.cursor.idxs[1] ?? null;
              for (const other of plots.filter((one) => one !== u)) {
                const at = element === null ? null : sides[plots.indexOf(other)][element];
                other.setCursor(at === null ? { left: -10, top: -10 } : { left: other.valToPos(xs[element], "x"), top: other.valToPos(at, "y") });
              }
              reading.textContent = read(order);
            }],
            setScale: [(u, key) => {
              if (u !== pointed || key !== "x") return;
              for (const other of plots.filter((one) => one !== u)) other.setScale("x", u.scales.x);
            }],
          },
        };
        const made = new uPlot(options, [xs, sides[side]], place);
        made.over.addEventListener("mouseenter", () => { pointed = made; });
        return made;
      });
    }

    draw();
    if (choice) choice.addEventListener("change", draw);
    dark.addEventListener("change", draw);
    addEventListener("beforeprint", draw);
    let width = places[0].clientWidth;
    new ResizeObserver(() => {
      if (places[0].clientWidth !== width) {
        width = places[0].clientWidth;
        draw();
      }
    }).observe(places[0]);
  }

  const figures = [...document.querySelectorAll(".errors")].filter((one) => one.querySelector(".plot"));
  figures.forEach((figure, index) => show(figure, data.errors[index]));
}

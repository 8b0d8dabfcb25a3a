const data = JSON.parse(document.getElementById("data").textContent);
const place = document.getElementById("plot");
const logarithmic = document.getElementById("logarithmic");
const difference = document.getElementById("difference");
const dark = matchMedia("(prefers-color-scheme: dark)");
const COLOURS = {
  light: ["#5a6470", "#0067a8", "#c2410c", "#00795c", "#7a3db8", "#8f6a00"],
  dark: ["#aab4bf", "#5eb3f0", "#ff9b63", "#46cfa4", "#c79bff", "#e6c45a"],
};
let plot = null;

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// What is drawn: the losses and the envelope around the reference's, or how far each curve is from its reference.
function drawn() {
  const colours = COLOURS[dark.matches ? "dark" : "light"];
  const shown = data.rows.map((row, index) => ({ ...row, colour: colours[index % colours.length], index }));
  if (!difference.checked) {
    const envelopes = data.envelopes.flatMap((one) => [
      { label: `${one.label}, top of the envelope`, losses: one.high, colour: ink("--quiet"), thin: true },
      { label: `${one.label}, bottom of the envelope`, losses: one.low, colour: ink("--quiet"), thin: true },
    ]);
    return [...shown, ...envelopes];
  }
  return shown.filter((row) => row.reference !== null).map((row) => {
    const against = data.rows[row.reference].losses;
    const losses = row.losses.map((loss, at) => (loss === null || against[at] === null ? null : Math.abs(loss - against[at])));
    return { ...row, label: `|${row.label} - ${data.rows[row.reference].label}|`, losses };
  });
}

function draw() {
  const rows = drawn();
  const log = logarithmic.checked;
  // A logarithm has no place for zero, nor for what is negative.
  const values = rows.map((row) => (log ? row.losses.map((loss) => (loss > 0 ? loss : null)) : row.losses));
  const axis = { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") } };
  const series = rows.map((row) => ({
    label: row.label,
    stroke: row.colour,
    width: row.thin ? 1 : row.index === 0 && !difference.checked ? 4 : 1.5,
    dash: row.thin ? [4, 4] : row.index ? [8, 3] : undefined,
    spanGaps: true,
    points: { show: data.steps.length < 60 },
    value: (_, value) => (value === null || value === undefined ? "none" : value.toPrecision(7)),
  }));
  const options = {
    width: place.clientWidth,
    height: Math.max(240, Math.min(380, place.clientWidth * 0.5)),
    scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
    axes: [
      { ...axis, label: "step" },
      { ...axis, label: difference.checked ? "difference of the losses" : "loss", size: 74,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : Number(tick.toPrecision(4)).toString())) },
    ],
    series: [{ label: "step", value: (_, value) => (value === null || value === undefined ? "none" : String(value)) }, ...series],
  };
  if (plot) plot.destroy();
  plot = new uPlot(options, [data.steps, ...values], place);
}

function copy(button) {
  const text = button.previousElementSibling.textContent;
  const said = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "copy"; }, 1500); };
  // A page from disk may not be let at the clipboard: then the text is selected, to be copied by hand.
  const select = () => {
    getSelection().selectAllChildren(button.previousElementSibling);
    said("selected");
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said("copied"), select);
  else select();
}

if (data.steps.length) {
  draw();
  for (const box of [logarithmic, difference]) box.addEventListener("change", draw);
  document.getElementById("whole").addEventListener("click", draw);
  dark.addEventListener("change", draw);
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) {
      width = place.clientWidth;
      draw();
    }
  }).observe(place);
  addEventListener("beforeprint", draw);
} else {
  place.textContent = "No run has a loss to show.";
}
// The graphs are a page within this one: it is loaded when it is near, and then can be asked for a culprit.
function showInGraphs(button, tries = 100) {
  const frame = [...document.querySelectorAll(".graphs")].find((one) => one.dataset.pair === button.dataset.pair);
  if (tries === 100) frame.scrollIntoView({ block: "start" });
  const inner = frame.contentWindow.page;
  if (inner) {
    if (!inner.goToCulprit(button.dataset.op, button.dataset.module)) button.textContent = "not found in these graphs";
  } else if (tries > 0) setTimeout(() => showInGraphs(button, tries - 1), 100);
}

for (const button of document.querySelectorAll(".shows")) button.addEventListener("click", () => showInGraphs(button));
for (const button of document.querySelectorAll(".copies")) button.addEventListener("click", () => copy(button));

const rows = document.getElementById("rows");
const filter = document.getElementById("filter");
const state = document.getElementById("status");
const said = document.getElementById("said");
const EVERY = 2000;

function chosen(name) {
  const box = rows.querySelector(`input[name=${name}]:checked`);
  return box ? box.value : "";
}

function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const one of rows.querySelectorAll(".investigation")) {
    const text = one.dataset.words.toLowerCase();
    const fits = words.every((word) => text.includes(word)) && (!state.value || one.dataset.status.split(" ").includes(state.value));
    one.hidden = !fits;
    count += fits;
  }
  if (words.length || state.value) said.textContent = `${count} shown`;
}

// What runs goes on: the rows are asked for again, and what was chosen and unfolded stays so.
async function follow() {
  try {
    const answer = await fetch("rows");
    const text = await answer.text();
    if (answer.ok && text !== follow.last) {
      const kept = ["a", "b"].map((name) => [name, chosen(name)]);
      const open = [...rows.querySelectorAll("details")].map((one) => one.open);
      rows.innerHTML = text;
      follow.last = text;
      for (const [name, value] of kept) {
        for (const box of rows.querySelectorAll(`input[name=${name}]`)) box.checked = box.value === value;
      }
      rows.querySelectorAll("details").forEach((one, at) => { one.open = open[at] ?? false; });
      show();
    }
  } catch {
    said.textContent = "numdrift view has stopped";
    return;
  }
  setTimeout(follow, EVERY);
}

for (const one of [filter, state]) one.addEventListener("input", show);
document.getElementById("pair").addEventListener("submit", (event) => {
  if (chosen("a") && chosen("b") && chosen("a") !== chosen("b")) return;
  event.preventDefault();
  said.textContent = "choose two runs: one as A and one as B";
});
setTimeout(follow, EVERY);

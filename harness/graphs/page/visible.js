/* The nodes of a pane that are drawn: all of them, a neighbourhood, or only those that differ. */

const MANY = 100; // beyond it a neighbourhood comes first
const ENOUGH = 36; // a first neighbourhood grows hop by hop as long as it holds no more than this

/* Where to begin: the culprit of this pane or of the other, else the first difference, else the first node. */
function firstSeeds(nodes, others) {
  const inPane = new Set(nodes);
  const here = (found) => [...relatives(found)].filter((node) => inPane.has(node));
  const marked = nodes.find((node) => markOf(node) !== null);
  if (marked !== undefined) return [marked];
  const across = here(others.filter((node) => markOf(node) !== null).slice(0, 1));
  if (across.length > 0) return across;
  const different = nodes.find(differs);
  if (different !== undefined) return here([different]);
  return anchors(others.filter(differs).slice(0, 1), inPane, nodes);
}

/* The nodes of this pane that represent nodes of only the other side: the counterparts of their nearest neighbours. */
function anchors(nodes, inPane, fallback) {
  let ring = new Set(nodes);
  const seen = new Set(ring);
  while (ring.size > 0) {
    const found = [...relatives([...ring])].filter((node) => inPane.has(node));
    if (found.length > 0) return found.slice(0, 4);
    ring = new Set([...ring].flatMap((node) => [...node.before, ...node.after]).filter((one) => !seen.has(one)));
    for (const node of ring) seen.add(node);
  }
  return fallback.slice(0, 1);
}

/* The nodes within so many hops of the seeds. */
function within(seeds, inPane, hops) {
  const found = new Set(seeds);
  let ring = [...found];
  for (let hop = 0; hop < hops && ring.length > 0; hop += 1) {
    const next = new Set(ring.flatMap((node) => [...node.before, ...node.after]));
    ring = [...next].filter((node) => inPane.has(node) && !found.has(node));
    for (const node of ring) found.add(node);
  }
  return found;
}

function firstHops(seeds, inPane) {
  let hops = 1;
  let size = within(seeds, inPane, 1).size;
  while (hops < 12) {
    const larger = within(seeds, inPane, hops + 1).size;
    if (larger > ENOUGH || larger === size) break;
    hops += 1;
    size = larger;
  }
  return hops;
}

/* The nodes that a pane's view shows. `view` has whole, hops, seeds and revealed. */
function visibleNodes(nodes, view, onlyDifferences) {
  const inPane = new Set(nodes);
  const kept = (node) => !onlyDifferences || differs(node) || markOf(node) !== null || view.revealed.has(node);
  const near = view.whole ? inPane : within(view.seeds, inPane, view.hops);
  return nodes.filter((node) => (near.has(node) && kept(node)) || view.revealed.has(node));
}

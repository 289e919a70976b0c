// The two programs side by side in the order of execution: pairs of layers, folded to blocks, coloured by their own error.
const graph = document.getElementById("graph-list");
const onlyCandidate = new Set(data.only_candidate);

// The layer that an entry belongs to: a tensor belongs to the module around it.
const layerOf = (row) => ["forward", "backward"].includes(data.phase[row]) ? data.path[row] : data.path[row].split(".").slice(0, -1).join(".");
// Layers that are wrong alone, that a cause names, or that are the first to differ, each with its first such entry.
const named = new Set(data.causes.flat());
const wrongAlone = new Map();
data.keys.forEach((_, row) => {
  if (statusOf(row).passed || inherited.has(row) || !data.phase[row] || !(data.run[row] || named.has(row) || row === data.first)) return;
  const layer = layerOf(row);
  if (!wrongAlone.has(layer)) wrongAlone.set(layer, row);
});
const candidatePath = (row) => data.partners[row] ? (KEY.exec(data.partners[row])?.[4] ?? data.partners[row]) : data.path[row];

const LOOKS = { own: "✗", training: "∇", inherited: "↓", unmatched: "∅", passes: "✓" };
function lookOf(row) {
  if (statusOf(row).name === "UNMATCHED") return "unmatched";
  const wrong = wrongAlone.get(data.path[row]);
  // An optimizer's mistake shows in the updates of layers that compute what they should.
  if (wrong !== undefined) return statusOf(row).passed && !data.run[wrong] && !["forward", "backward", "parameter"].includes(data.phase[wrong]) ? "training" : "own";
  return statusOf(row).passed ? "passes" : "inherited";
}
// A layer whose output passes may be wrong for its gradient or its update: then that entry stands for it.
const entryOf = (row) => statusOf(row).passed ? wrongAlone.get(data.path[row]) ?? row : row;
const worstLook = (rows) => Object.keys(LOOKS).find((look) => rows.some((row) => lookOf(row) === look)) ?? "passes";

// One entry for each layer: its first output at the step where the trouble begins, or at the first step.
function graphRows() {
  const forward = data.keys.map((_, row) => row).filter((row) => data.phase[row] === "forward" && data.run[row] === "");
  const step = data.first !== null && data.step[data.first] !== null ? data.step[data.first] : forward.length ? data.step[forward[0]] : null;
  const seen = new Map();
  for (const row of forward.filter((one) => data.step[one] === step && !/:input/.test(data.keys[one]))) if (!seen.has(data.path[row]) || lookOf(row) === "own") seen.set(data.path[row], row);
  return [...seen.values()];
}

function boxes(row, look, name, other, extra, keys = null) {
  const text = (path, absent) => absent ? make("span", { class: "box absent" }, "∅") : make("span", { class: "box" }, make("bdi", { title: keys }, path || "(model)"), extra ? make("small", {}, extra) : null);
  const times = toNumber(data.numbers.times_floor[entryOf(row)]);
  const error = times === null ? "" : times < 0.1 ? " < 0.1 ×" : ` ${ratio(times)} ×`;
  return [text(name, onlyCandidate.has(row)), make("span", { class: "edge", title: t("term.times_floor"), "data-t-title": "term.times_floor" }, LOOKS[look], make("small", {}, error)),
    text(other, look === "unmatched" && !onlyCandidate.has(row))];
}

function leaf(row) {
  const look = lookOf(row), target = entryOf(row);
  return make("li", {}, make("button", { type: "button", class: `pair ${look}`, "data-e": String(target), title: t("graph." + look), "data-t-title": "graph." + look },
    ...boxes(row, look, data.path[row], candidatePath(row), data.layer[row], keysOf(target))));
}

// Consecutive layers with the same beginning of their path are one block, opened when it is asked for.
function level(rows, depth) {
  const groups = [];
  for (const row of rows) {
    const name = data.path[row].split(".").slice(0, depth + 1).join(".");
    if (groups.at(-1)?.name === name) groups.at(-1).rows.push(row); else groups.push({ name, rows: [row] });
  }
  if (groups.length === 1 && rows.length > 1 && rows.some((row) => data.path[row].split(".").length > depth + 1)) return level(rows, depth + 1);
  return groups.map((group) => group.rows.length === 1 ? leaf(group.rows[0]) : block(group, depth));
}

function block({ name, rows }, depth) {
  const look = worstLook(rows), whole = rows.find((row) => data.path[row] === name) ?? rows.at(-1);
  const parts = candidatePath(whole).split("."), other = whole !== undefined && data.path[whole] === name ? candidatePath(whole) : parts.slice(0, depth + 1).join(".");
  const inside = make("ol", {});
  const made = make("details", { ontoggle: () => { if (made.open && !inside.children.length) inside.append(...level(rows, depth + 1)); } },
    make("summary", { class: `pair ${look}`, title: t("graph." + look), "data-t-title": "graph." + look }, ...boxes(whole, look, name, other, `${rows.length}`)), inside);
  // What is wrong by itself is in view when the page opens.
  if (look === "own") { inside.append(...level(rows, depth + 1)); made.open = true; }
  return make("li", {}, made);
}

function drawGraph() {
  if (!graph) return;
  const rows = graphRows();
  // A plain log has no layers to draw, and nothing leads to what is not drawn.
  for (const one of document.querySelectorAll("#graph, .toc a[href='#graph']")) one.hidden = rows.length < 2;
  graph.replaceChildren(...level(rows, 0));
}

function moveInGraph(event) {
  const all = [...graph.querySelectorAll(".pair")].filter((one) => one.checkVisibility()), at = all.indexOf(event.target);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (at < 0 || to === undefined || !all[to]) return;
  event.preventDefault();
  all[to].focus();
}
graph?.addEventListener("keydown", moveInGraph);

// Puts the page together: language, light and dark, which chart is drawn when, keys, and which page the address means.
const waiting = new Map();
const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting && waiting.has(one.target)) {
    const draw = waiting.get(one.target);
    waiting.delete(one.target);
    withLibrary(draw);
  }
}, { rootMargin: "300px" });

// A chart costs time: it is drawn when it comes near the screen.
function whenSeen(place, draw) {
  waiting.set(place, draw);
  watcher.unobserve(place);
  watcher.observe(place);
}

const depth = { step: null, phase: null, measure: "rel_l2" };
const plainRows = () => {
  const all = data.keys.map((_, row) => row);
  const usual = all.filter((row) => data.run[row] === "");
  return usual.length ? usual : all;
};

function depthRows() {
  return plainRows().filter((row) => (depth.step === "" || String(data.step[row]) === depth.step) && (depth.phase === "" || data.phase[row] === depth.phase) && data.numbers.rel_l2[row] !== null);
}

function drawDepth() {
  const rows = plainRows();
  const steps = [...new Set(rows.map((row) => data.step[row]).filter((one) => one !== null))];
  const phases = [...new Set(rows.map((row) => data.phase[row]))].filter(Boolean);
  if (depth.step === null) {
    const first = data.first;
    depth.step = first !== null && steps.includes(data.step[first]) ? String(data.step[first]) : steps.length ? String(steps[0]) : "";
    // The forward pass tells most, unless it is in order and the trouble begins later.
    const forward = rows.some((row) => data.phase[row] === "forward" && String(data.step[row]) === depth.step && !statusOf(row).passed);
    const later = first !== null && !forward && phases.includes(data.phase[first]) ? data.phase[first] : null;
    depth.phase = later ?? (phases.includes("forward") ? "forward" : "");
    // One point makes no line: then the whole step is shown, or everything.
    if (depthRows().length < 2) depth.phase = "";
    if (depthRows().length < 2) depth.step = "";
  }
  options(document.getElementById("depth-step"), [["", t("filter.all")], ...steps.map((one) => [String(one), String(one)])], depth.step);
  options(document.getElementById("depth-phase"), [["", t("filter.all")], ...phases.map((one) => [one, one])], depth.phase);
  options(document.getElementById("depth-measure"), ["rel_l2", "max_abs", "mean_abs", "max_rel", "mean_rel", "cosine_distance", "times_limit"].map((one) => [one, t(one)]), depth.measure);
  const place = document.getElementById("depth-chart");
  whenSeen(place, () => depthChart(place, depthRows(), depth.measure));
}

let chosenCurve = 0;
function drawCurves() {
  const place = document.getElementById("curve-chart");
  if (!place) return;
  options(document.getElementById("curve"), data.curves.map((one, at) => [String(at), `${one.name} (${one.step.length})`]), String(chosenCurve));
  whenSeen(place, () => curveChart(place, data.curves[chosenCurve]));
}

function draw() {
  readColours();
  if (state.entry !== null) drawEntry(state.entry);
  drawDepth();
  drawCurves();
}

function route() {
  const found = /^#entry-(\d+)$/.exec(location.hash);
  const row = found && Number(found[1]) < data.keys.length ? Number(found[1]) : null;
  const report = document.getElementById("report"), page = document.getElementById("entry");
  const before = state.entry;
  if (row !== null && before === null) state.scroll = scrollY;
  state.entry = row;
  report.hidden = row !== null;
  page.hidden = row === null;
  document.title = row === null ? state.title : inWords(row);
  if (row !== null) { drawEntry(row); scrollTo(0, 0); }
  else if (before !== null) {
    page.replaceChildren();
    scrollTo(0, state.scroll);
    const line = lineOf(before);
    if (line) { line.querySelector("a").focus({ preventScroll: true }); line.scrollIntoView({ block: "nearest" }); }
  }
}

function step(by, onlyBad) {
  const focused = document.activeElement?.closest?.("#table tbody tr");
  const here = state.entry ?? (focused ? Number(focused.id.slice(1)) : null);
  const at = visible.indexOf(here);
  const wanted = (row) => !onlyBad || !statusOf(row).passed;
  const next = by > 0 ? visible.slice(at + 1).find(wanted) : visible.slice(0, Math.max(at, 0)).findLast(wanted);
  if (next === undefined) return;
  if (state.entry !== null) openEntry(next);
  else { const line = lineOf(next); line.querySelector("a").focus(); line.scrollIntoView({ block: "center" }); }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    if (state.entry !== null) location.hash = "#layers";
    else if (typing) { const search = document.getElementById("search"); search.value = ""; search.dispatchEvent(new Event("input")); event.target.blur(); }
    return;
  }
  if (typing) return;
  const act = { "/": () => { if (state.entry !== null) location.hash = "#layers"; setTimeout(() => document.getElementById("search").focus()); }, j: () => step(1), k: () => step(-1), n: () => step(1, true), p: () => step(-1, true), d: switchTheme, l: switchLanguage }[event.key];
  if (act) { event.preventDefault(); act(); }
}

async function copy(button) {
  const text = button.dataset.copy;
  try { await navigator.clipboard.writeText(text); } catch {
    // A page opened from disk may not use the clipboard directly; a selection can be copied.
    const field = make("textarea", {}, text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = t("copied");
  setTimeout(() => { button.textContent = t("copy"); }, 1500);
}

function start() {
  state.title = document.title;
  for (const one of document.querySelectorAll("#curves details")) one.open = false;
  startPage(() => { drawFilters(); draw(); });
  setUpTable();
  setUpTree();
  drawFilters();
  for (const name of ["step", "phase", "measure"]) document.getElementById("depth-" + name).addEventListener("change", (event) => { depth[name] = event.target.value; drawDepth(); });
  document.getElementById("curve")?.addEventListener("change", (event) => { chosenCurve = Number(event.target.value); drawCurves(); });
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-cause]");
    if (button?.dataset.copy !== undefined) copy(button);
    else if (button) { Object.assign(filter, { cause: Number(button.dataset.cause), status: "", chosen: true, module: "" }); applyFilter(); document.getElementById("layers").scrollIntoView(); }
    const link = event.target.closest("[data-e]");
    if (!link) return;
    event.preventDefault();
    openEntry(Number(link.dataset.e));
  });
  document.getElementById("heat")?.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td[data-e]");
    if (cell && !cell.title) { const row = Number(cell.dataset.e); cell.title = `${inWords(row)}\n${statusOf(row).name}  ${t("rel_l2")} ${shown(data.numbers.rel_l2[row])}`; }
  });
  // A long map begins where something does not pass.
  for (const map of document.querySelectorAll(".heat")) {
    const wrong = map.querySelector("td.x");
    if (wrong) map.scrollTop = wrong.offsetTop - map.clientHeight / 3;
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("hashchange", route);
  drawGraph();
  draw();
  route();
}
start();

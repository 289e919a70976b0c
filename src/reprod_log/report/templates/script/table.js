// The table of entries: search, filter, sort. Rows become elements only as far as the reader has scrolled.
const BATCH = 60;
const body = document.querySelector("#table tbody");
// By the names of both sides and by the words that stand in the table.
const searched = {};
const textsToSearch = () => searched[state.language] ??= data.keys.map((_, row) => `${keysOf(row)} ${inWords(row)}`.toLowerCase());
const filter = { words: [], status: "", step: "", phase: "", module: "", cause: null, chosen: false };
const causes = data.causes.map((rows) => new Set(rows));
const inherited = new Set(data.inherited);
let order = data.keys.map((_, row) => row);
let visible = order;
let scrolled = false;

const short = (value) => {
  const number = toNumber(value);
  if (number === null) return "–";
  return number === 0 || !Number.isFinite(number) ? String(number) : number.toExponential(1);
};
const ratio = (value) => {
  const number = toNumber(value);
  if (number === null) return "–";
  if (!Number.isFinite(number)) return String(number);
  if (number >= 10000 || (number > 0 && number < 0.001)) return number.toExponential(1);
  return number >= 10 ? number.toFixed(0) : String(Number(number.toPrecision(2)));
};
// The bar behind a relative error: a logarithmic scale from 1e-16 to 1.
const share = (value) => {
  const number = toNumber(value);
  return number ? Math.round(Math.min(1, Math.max(0, (Math.log10(number) + 16) / 16 || 1)) * 100) : 0;
};

function cell(name, row) {
  if (name === "status") return make("td", {}, `${statusOf(row).mark} ${statusOf(row).name}`);
  if (name === "entry") return make("td", {}, make("a", { href: "#entry-" + row }, make("bdi", { title: keysOf(row) }, inWords(row))));
  if (name === "shape") return make("td", {}, data.shape[row]);
  const value = data.numbers[name][row];
  if (name === "rel_l2") return make("td", { class: "b", style: `--b:${share(value)}` }, short(value));
  return make("td", {}, name.startsWith("times_") ? ratio(value) : short(value));
}

function drawRows(most) {
  const made = document.createDocumentFragment();
  for (const row of visible.slice(body.rows.length, most)) {
    made.append(make("tr", { id: "r" + row, class: statusOf(row).name }, ...data.columns.map((name) => cell(name, row))));
  }
  body.append(made);
}

function redraw() {
  body.replaceChildren();
  drawRows(BATCH);
  // Asking for the place lays the page out, so it is asked only of a reader who has scrolled.
  if (scrolled) document.getElementById("entries").scrollTop = 0;
  scrolled = false;
}

// The line of a row, drawn now if the reader has not come so far yet; undefined if it is filtered out.
function lineOf(row) {
  const at = visible.indexOf(row);
  if (at < 0) return undefined;
  drawRows(at + BATCH);
  return body.rows[at];
}

function inModule(row) {
  const path = data.path[row], phase = data.phase[row];
  if (!filter.module) return true;
  if (filter.module.startsWith("(")) return filter.module === `(${phase})` || filter.module === `(${phase}).${path}` || (filter.module === "(model)" && path === "");
  return path === filter.module || path.startsWith(filter.module + ".");
}

// Until the reader chooses, the table has what matters: what does not pass, without what only inherits it.
function shownStatus() {
  if (filter.chosen) return filter.status;
  if (filter.words.length || filter.step !== "" || filter.phase !== "" || filter.module) return "";
  if (!data.status.some((one) => !data.statuses[one].passed)) return "";
  return inherited.size ? "own" : "bad";
}

function hasStatus(row, status) {
  const one = statusOf(row);
  if (status === "bad" || status === "own") return !one.passed && (status === "bad" || !inherited.has(row));
  return status === "" || one.name === status;
}

function fits(row, status) {
  return filter.words.every((word) => textsToSearch()[row].includes(word))
    && hasStatus(row, status)
    && (filter.step === "" || String(data.step[row]) === filter.step)
    && (filter.phase === "" || data.phase[row] === filter.phase)
    && (filter.cause === null || causes[filter.cause].has(row))
    && inModule(row);
}

function applyFilter() {
  const status = shownStatus();
  visible = order.filter((row) => fits(row, status));
  redraw();
  document.getElementById("shown").textContent = t("shown", { count: visible.length, total: order.length });
  const button = document.getElementById("module");
  button.hidden = !filter.module && filter.cause === null;
  button.textContent = filter.cause === null ? `${t("filter.module")}: ${filter.module} ✕` : `${t("cause")} ${filter.cause + 1} ✕`;
  for (const one of document.querySelectorAll("#tree .node")) one.classList.toggle("chosen", one.querySelector("a").dataset.path === filter.module);
  for (const one of document.querySelectorAll("#status-filter button")) one.setAttribute("aria-pressed", String(one.dataset.name === status));
}

function sortBy(name, descending) {
  const value = (row) => {
    if (name === "entry") return row;
    if (name === "status") return data.status[row];
    const number = toNumber(data.numbers[name][row]);
    // What is not a number is worse than any; what was not measured comes last in both directions.
    return number === null ? null : Number.isNaN(number) ? Infinity : number;
  };
  order = data.keys.map((_, row) => row).sort((a, b) => {
    const left = value(a), right = value(b);
    if (left === null || right === null) return (left === null) - (right === null) || a - b;
    return (left < right ? -1 : left > right ? 1 : 0) * (descending ? -1 : 1) || a - b;
  });
  for (const head of document.querySelectorAll("#table th[data-sort]")) {
    if (head.dataset.sort === name) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  applyFilter();
}

function setUpTable() {
  for (const head of document.querySelectorAll("#table th[data-sort]")) {
    head.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      // Large errors and bad statuses are what people look for: they come first.
      sortBy(head.dataset.sort, before === null ? head.dataset.sort !== "entry" : before === "ascending");
    });
  }
  const search = document.getElementById("search");
  search.addEventListener("input", () => { filter.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); applyFilter(); });
  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (!line || getSelection().toString()) return;
    event.preventDefault();
    openEntry(Number(line.id.slice(1)));
  });
  const box = document.getElementById("entries");
  box.addEventListener("scroll", () => { scrolled = true; if (box.scrollTop + box.clientHeight > box.scrollHeight - 800) drawRows(body.rows.length + BATCH); });
  document.getElementById("filter-step").addEventListener("change", (event) => { filter.step = event.target.value; applyFilter(); });
  document.getElementById("filter-phase").addEventListener("change", (event) => { filter.phase = event.target.value; applyFilter(); });
  document.getElementById("module").addEventListener("click", () => { filter.module = ""; filter.cause = null; applyFilter(); });
}

function drawFilters() {
  const present = new Set(data.status.map((one) => data.statuses[one].name));
  const bad = data.statuses.filter((one) => !one.passed && present.has(one.name));
  const choices = [["", t("filter.all")], ...(bad.length ? [["bad", t("filter.bad")]] : []), ...(inherited.size ? [["own", t("filter.own")]] : []),
    ...data.statuses.filter((one) => present.has(one.name)).map((one) => [one.name, `${one.mark} ${one.name}`])];
  document.getElementById("status-filter").replaceChildren(...choices.map(([name, text]) =>
    make("button", { type: "button", "data-name": name, title: name === "own" ? t("filter.own.help", { count: inherited.size }) : null, onclick: () => { Object.assign(filter, { status: name, chosen: true }); applyFilter(); } }, text)));
  const steps = [...new Set(data.step.filter((one) => one !== null))].sort((a, b) => a - b);
  options(document.getElementById("filter-step"), [["", t("filter.all")], ...steps.map((one) => [String(one), String(one)])], filter.step);
  const phases = [...new Set(data.phase)].filter(Boolean);
  options(document.getElementById("filter-phase"), [["", t("filter.all")], ...phases.map((one) => [one, one])], filter.phase);
  applyFilter();
}

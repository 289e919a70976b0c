// The page of one entry.
const SIDES = ["min", "max", "mean", "std", "rms", "abs_max", "nan", "inf"];
const COUNTS = ["count", "differing", "nan_both", "nonfinite_mismatched", "beyond_limit", "limit", "rmse", "max_ulp", "mean_ulp"];
const STATISTICS = ["max_abs", "mean_abs", "max_rel", "mean_rel", "rel_l2", "cosine_distance"];

// Most of a report are these pages: they lie packed in the file and are read as soon as the first screen is there.
let pages = null;
const reading = unpacked(document.getElementById("entry-pages")).then((text) => { pages = JSON.parse(text); });

const openEntry = (row) => { location.hash = "#entry-" + row; };

function table(heads, rows) {
  return make("div", { class: "scroll", tabindex: 0 }, make("table", { class: "numbers" },
    heads ? make("thead", {}, make("tr", {}, ...heads.map((one) => make(one ? "th" : "td", {}, one)))) : null,
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((one) => make("td", {}, one)))))));
}

const part = (title, ...content) => make("section", {}, make("h2", {}, title), ...content);

function checksPart(detail) {
  const rows = (detail.checks ?? []).map(([metric, value, limit, passed, floor]) => {
    const times = toNumber(floor) ? shown(toNumber(value) / toNumber(floor)) : "–";
    return [`${passed ? "✓" : "✗"} ${metric}`, shown(value), shown(limit), shown(floor), times];
  });
  return part(t("entry.checks"),
    detail.reason !== undefined ? make("p", {}, make("bdi", {}, said(detail.reason, pages))) : null,
    make("p", { class: "dim" }, `${t("evidence")}: ${said(detail.evidence, pages)}`),
    rows.length ? table([t("entry.metric"), t("entry.value"), t("entry.limit"), t("floor"), t("times_floor")], rows) : null);
}

function statisticsPart(row, detail) {
  if (!detail.sides) return part(t("entry.statistics"), make("p", {}, t("entry.none")));
  const [reference, candidate] = detail.sides;
  const numbers = STATISTICS.map((name) => [t(name), shown(data.numbers[name][row])]);
  const counts = COUNTS.map((name, at) => [t("counts." + name), detail.counts[at]]).filter(([, value]) => value !== null).map(([name, value]) => [name, shown(value)]);
  return part(t("entry.statistics"),
    table(["", t("reference"), t("candidate")], SIDES.map((name, at) => [t("side." + name), shown(reference[at]), shown(candidate[at])])),
    table(null, [...numbers, ...counts]));
}

function matchedPart(row, detail) {
  const facts = [[t("shape"), data.shape[row]], [t("dtype"), detail.dtype], [t("entry.layer"), data.layer[row]], [t("entry.matched"), detail.how ? t("how." + detail.how) : ""],
    [t("entry.confidence"), detail.confidence ? `${Math.round(detail.confidence * 100)} %` : ""], [t("entry.view"), said(detail.view, pages)],
    ...(detail.notes ?? []).map((note) => [t("note"), said(note, pages)])].filter(([, value]) => value);
  return facts.length ? part(t("entry.matched"), table(null, facts.map(([name, value]) => [name, make("bdi", {}, value)]))) : null;
}

function worstPart(detail) {
  const rows = (detail.worst ?? []).map(([index, reference, candidate]) => {
    const apart = toNumber(candidate) - toNumber(reference);
    return [index, shownFully(reference), shownFully(candidate), typeof reference === "string" ? "–" : shown(apart)];
  });
  return part(t("entry.worst"), rows.length
    ? table([t("entry.index"), t("reference"), t("candidate"), t("difference")], rows)
    : make("p", { class: "dim" }, t("entry.worst.none")));
}

const shownFully = (value) => typeof value === "number" ? String(value) : String(value);

function findingsPart(row) {
  const own = pages.findings.filter(([, , , , keys]) => keys.includes(data.keys[row]) || keys.includes(data.path[row]));
  return own.length ? part(t("entry.findings"), ...own.map(([cause, evidence, advice, confidence]) =>
    make("div", { class: "finding" }, make("p", {}, make("b", {}, said(cause, pages)), " ", make("small", { class: "tag" }, t(confidence))), make("p", {}, said(evidence, pages)), advice !== null ? make("p", {}, "→ " + said(advice, pages)) : null))) : null;
}

// The same tensor at the other steps.
function overSteps(row) {
  const name = (one) => data.keys[one].replace(/step\d+\//, "step*/");
  if (data.step[row] === null) return [];
  return data.keys.map((_, one) => one).filter((one) => data.path[one] === data.path[row] && data.phase[one] === data.phase[row] && name(one) === name(row));
}

function stepsPart(row) {
  const same = overSteps(row);
  if (same.length < 2) return null;
  const rows = same.slice(0, 200).map((one) => [make("a", { href: "#entry-" + one, "aria-current": one === row ? "true" : null }, String(data.step[one])), badge(one), shown(data.numbers.rel_l2[one]), shown(data.numbers.max_abs[one]), shown(data.numbers.times_limit[one])]);
  return part(t("entry.steps"), table([t("step"), t("status"), t("rel_l2"), t("max_abs"), t("times_limit")], rows));
}

function drawEntry(row) {
  if (pages === null) return reading.then(() => { if (state.entry === row) drawEntry(row); });
  const page = document.getElementById("entry"), detail = pages.details[row];
  const seen = visible, at = seen.indexOf(row);
  const link = (target, text) => target === undefined ? make("span", { class: "dim" }, text) : make("a", { href: "#entry-" + target }, text);
  const same = detail.counts ? detail.counts[0] - detail.counts[1] - detail.counts[2] - detail.counts[3] : 0;
  const histogramPlace = make("div", { class: "small chart" }), scatterPlace = make("div", { class: "small chart" }), tensorPlace = make("div");
  page.replaceChildren(
    make("p", { class: "tools" }, make("a", { href: "#layers", id: "back" }, "← " + t("back")), link(seen[at - 1], "↑ " + t("previous")), link(at < 0 ? undefined : seen[at + 1], "↓ " + t("next"))),
    make("h1", {}, make("bdi", {}, inWords(row))), make("p", { class: "dim" }, make("bdi", {}, make("code", {}, keysOf(row)))), make("p", {}, badge(row), " ", t("status." + statusOf(row).name)),
    tensorPlace, make("div", { class: "grid" }, ...[checksPart(detail),
      detail.octaves ? part(t("entry.histogram"), make("p", { class: "dim" }, t("entry.histogram.help", { count: same, total: detail.counts[0] })), histogramPlace) : null,
      detail.samples ? part(t("entry.scatter"), make("p", { class: "dim" }, t("entry.scatter.help", { count: detail.samples.length / 2, total: detail.counts[0] })), scatterPlace) : null,
      worstPart(detail), statisticsPart(row, detail), matchedPart(row, detail), findingsPart(row), stepsPart(row)].filter(Boolean)));
  showTensor(tensorPlace, row, detail);
  if (detail.octaves) withLibrary(() => histogram(histogramPlace, detail));
  const numeric = (detail.worst ?? []).filter((one) => typeof one[1] === "number" && typeof one[2] === "number");
  if (detail.samples) withLibrary(() => scatterCharts(scatterPlace, detail.samples, numeric));
  page.querySelector("#back").focus({ preventScroll: true });
}

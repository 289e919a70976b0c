// Charts by Bokeh. Each takes a place and numbers; colours come from the page, so that light and dark both work.
let library = null;

// The library is run when the first chart is wanted. Its script lies in the page, or beside the pages that share it.
const loaded = (address) => new Promise((done, failed) => root.append(make("script", { src: address, onload: done, onerror: failed })));
async function readLibrary() {
  for (const address of data.scripts ?? []) await loaded(address);
  for (const one of await Promise.all([...document.querySelectorAll("script.packed")].map(unpacked))) root.append(make("script", {}, one));
  Bokeh.set_log_level("warn");
}

function withLibrary(draw) {
  library ??= readLibrary();
  return library.then(draw);
}

const MARKERS = { PASS: "circle", ACCEPTED: "diamond", SUSPECT: "triangle", PRECISION: "inverted_triangle", FAIL: "x", UNMATCHED: "square", INCOMPARABLE: "square", NOTHING: "square" };

function colour(name) {
  const probe = make("span");
  probe.style.color = `var(--${name})`;
  root.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const statusColour = (name) => colour({ PASS: "pass", ACCEPTED: "link", SUSPECT: "warn", PRECISION: "warn", FAIL: "fail" }[name] ?? "odd");

// The library reads $$…$$ and \(…\) as formulas; a name is never one.
const asText = (text) => text.replaceAll("$", "$\u200b").replaceAll("\\", "\\\u200b");

function source(columns) {
  return new Bokeh.ColumnDataSource({ data: columns });
}

function figure(settings) {
  const made = Bokeh.Plotting.figure({
    height: 320, sizing_mode: "stretch_width", tools: "pan,box_zoom,reset,save", toolbar_location: "above",
    background_fill_color: null, border_fill_color: null, outline_line_color: colour("line"), min_border_right: 20, ...settings,
  });
  made.toolbar.logo = null;
  const text = colour("text"), line = colour("line");
  for (const axis of [made.xaxis, made.yaxis].flat()) {
    axis.major_label_text_color = text; axis.axis_label_text_color = text;
    axis.axis_line_color = line; axis.major_tick_line_color = line; axis.minor_tick_line_color = null;
    axis.axis_label_text_font_style = "normal"; axis.major_label_text_font_size = "12px";
  }
  for (const grid of [made.xgrid, made.ygrid].flat()) { grid.grid_line_color = line; grid.grid_line_alpha = 0.6; }
  return made;
}

function equip(made, tooltips, renderers, whenTapped) {
  made.add_tools(new Bokeh.HoverTool({ tooltips, renderers, point_policy: "snap_to_data" }));
  if (whenTapped) {
    const tap = new Bokeh.TapTool({ behavior: "inspect", renderers });
    tap.callback = { execute: (_, found) => {
      const indices = found.source.inspected.indices;
      if (indices.length) whenTapped(found.source.data.row[indices[0]]);
    } };
    made.add_tools(tap);
  }
  const legend = made.legend?.items ? made.legend : null;
  if (legend && legend.items.length) {
    legend.background_fill_color = colour("panel"); legend.background_fill_alpha = 0.85; legend.border_line_color = null;
    legend.label_text_color = colour("text"); legend.label_text_font_size = "12px"; legend.click_policy = "hide";
    legend.padding = 2; legend.margin = 0; legend.spacing = 14; legend.orientation = "horizontal";
    if (innerWidth < 700) legend.ncols = 2;
    // Beside the picture, not on top of its first points.
    made.center = made.center.filter((one) => one !== legend);
    made.add_layout(legend, "above");
  }
}

function show(made, place) {
  const holder = make("div");
  place.replaceChildren(holder);
  return Bokeh.Plotting.show(made, holder);
}

// Numbers for a logarithmic axis: 0 stands on a line below the smallest, what is not finite above the largest.
function onLogAxis(...series) {
  const finite = series.flat().map(toNumber).filter((one) => one !== null && Number.isFinite(one) && one > 0);
  const least = finite.length ? Math.min(...finite) : 1e-9, most = finite.length ? Math.max(...finite) : 1;
  // A decade below is kept for zeros and one above for what is not finite, each only where there are such values.
  const hasZero = series.flat().some((one) => one === 0), hasTop = series.flat().some((one) => one === "nan" || one === "inf" || one === "-inf");
  const zero = 10 ** (Math.floor(Math.log10(least)) - 1), top = 10 ** (Math.ceil(Math.log10(most)) + 1);
  const place = (value) => {
    const number = toNumber(value);
    return number === null ? NaN : !Number.isFinite(number) ? top : number === 0 ? zero : number;
  };
  return { zero, top, place, hasZero, hasTop, range: [hasZero ? zero / 3 : least / 3, hasTop ? top * 3 : most * 3] };
}

// The lines on which zeros and what is not finite stand: neither is a number of the axis.
function zeroLine(made, axis) {
  for (const [there, at, text, of] of [[axis.hasZero, axis.zero, t("depth.zero"), "noise"], [axis.hasTop, axis.top, t("depth.nonfinite"), "fail"]]) {
    if (!there) continue;
    made.add_layout(new Bokeh.Span({ location: at, dimension: "width", line_color: colour(of), line_dash: "dotted" }));
    made.add_layout(new Bokeh.Label({ x: 4, y: at, x_units: "screen", text, text_color: colour("dim"), text_font_size: "11px", text_baseline: "bottom", y_offset: 2 }));
  }
}

function depthChart(place, rows, measure) {
  const values = rows.map((row) => data.numbers[measure][row]);
  // A picture of nothing but zeros says less than a sentence.
  if (values.every((one) => one === 0 || one === null)) {
    place.replaceChildren(make("p", { class: "box calm" }, t(values.some((one) => one === 0) ? "depth.identical" : "depth.nothing")));
    return null;
  }
  const relative = measure === "rel_l2";
  const extra = (name) => relative ? rows.map((row) => data.numbers[name][row]) : [];
  const floors = extra("relative_floor"), own = extra("relative_own"), wide = extra("relative_float64");
  const axis = onLogAxis(values, floors, own, wide);
  const made = figure({ y_axis_type: "log", height: 380, y_range: axis.range, x_range: [-1, Math.max(rows.length, 2)] });
  made.yaxis.axis_label = t(measure);
  const x = rows.map((_, index) => index);
  // As many names as can be read beside each other.
  const every = Math.ceil(rows.length / (innerWidth < 700 ? 15 : 60));
  const named = x.filter((index) => index % every === 0);
  made.xaxis.ticker = new Bokeh.FixedTicker({ ticks: named });
  const short = (text) => text.length > 26 ? "…" + text.slice(-25) : text;
  made.xaxis.major_label_overrides = new Map(named.map((index) => [index, asText(short(data.path[rows[index]] || t("whole")))]));
  made.xaxis.major_label_orientation = 0.9;
  if (every > 1) made.xaxis.axis_label = t("order");
  if (floors.some((one) => one !== null)) {
    made.varea({ field: "x" }, { field: "low" }, { field: "high" }, { source: source({ x, low: x.map(() => axis.range[0]), high: floors.map(axis.place) }), fill_color: colour("noise"), fill_alpha: 0.3, legend_label: t("floor") });
  }
  if (measure === "times_limit") made.add_layout(new Bokeh.Span({ location: 1, dimension: "width", line_color: colour("fail"), line_dash: "dashed" }));
  zeroLine(made, axis);
  if (wide.some((one) => one !== null)) made.line(x, wide.map(axis.place), { line_color: colour("reference"), line_dash: "dotted", legend_label: t("depth.float64") });
  made.line(x, values.map(axis.place), { line_color: colour("dim"), line_alpha: 0.5 });
  const columns = {
    x, y: values.map(axis.place), row: rows, key: rows.map((row) => inWords(row)), value: values.map(shown),
    status: rows.map((row) => `${statusOf(row).mark} ${statusOf(row).name}`), floor: rows.map((row) => shown(data.numbers.relative_floor[row])),
    own: rows.map((row) => shown(data.numbers.relative_own[row])), marker: rows.map((row) => MARKERS[statusOf(row).name]),
    colour: rows.map((row) => statusColours[statusOf(row).name]),
  };
  const points = made.scatter({ field: "x" }, { field: "y" }, { source: source(columns), size: rows.length > 400 ? 5 : 9, marker: { field: "marker" }, line_color: { field: "colour" }, fill_color: { field: "colour" }, line_width: 2, legend_label: t("depth.difference") });
  if (own.some((one) => one !== null)) made.scatter(x, own.map(axis.place), { marker: "diamond", size: 9, fill_color: null, line_color: colour("candidate"), line_width: 1.5, legend_label: t("depth.own") });
  const tips = [[t("entry"), "@key"], [t("status"), "@status"], [t(measure), "@value"]];
  if (relative && floors.some((one) => one !== null)) tips.push([t("floor"), "@floor"], [t("depth.own"), "@own"]);
  equip(made, tips, [points], openEntry);
  return show(made, place);
}

function curveChart(place, curve) {
  const x = curve.step, reference = curve.reference.map(toNumber), candidate = curve.candidate.map(toNumber);
  const upper = figure({ height: 300 });
  upper.yaxis.axis_label = asText(curve.name);
  const columns = { x, reference, candidate, row: curve.row, left: curve.reference.map(String), right: curve.candidate.map(String), difference: curve.difference.map(shown) };
  const both = source(columns);
  upper.line({ field: "x" }, { field: "reference" }, { source: both, line_color: colour("reference"), line_width: 2, legend_label: t("reference") });
  const a = upper.scatter({ field: "x" }, { field: "reference" }, { source: both, marker: "circle", size: 7, fill_color: null, line_color: colour("reference"), legend_label: t("reference") });
  upper.line({ field: "x" }, { field: "candidate" }, { source: both, line_color: colour("candidate"), line_width: 2, line_dash: "dashed", legend_label: t("candidate") });
  const b = upper.scatter({ field: "x" }, { field: "candidate" }, { source: both, marker: "x", size: 8, line_color: colour("candidate"), legend_label: t("candidate") });
  // A value that is not finite has no place on the axis: its step is marked.
  const lost = x.filter((_, at) => ![reference[at], candidate[at]].every(Number.isFinite));
  for (const step of lost.slice(0, 100)) upper.add_layout(new Bokeh.Span({ location: step, dimension: "height", line_color: colour("fail"), line_dash: "dotted" }));
  if (lost.length) upper.add_layout(new Bokeh.Label({ x: lost[0], y: 4, y_units: "screen", text: t("depth.nonfinite"), text_color: colour("fail"), text_font_size: "11px", x_offset: 3 }));
  const axis = onLogAxis(curve.difference, curve.floor, curve.limit);
  const whole = () => new Bokeh.BasicTicker({ min_interval: 1 });
  const lower = figure({ height: 220, toolbar_location: null, y_axis_type: "log", y_range: axis.range, x_range: upper.x_range });
  lower.yaxis.axis_label = t("difference"); lower.xaxis.axis_label = t("step");
  upper.xaxis.ticker = whole(); lower.xaxis.ticker = whole();
  if (curve.floor.some((one) => one !== null)) lower.varea(x, x.map(() => axis.range[0]), curve.floor.map(axis.place), { fill_color: colour("noise"), fill_alpha: 0.3, legend_label: t("floor") });
  if (curve.limit.some((one) => one !== null)) lower.line(x, curve.limit.map(axis.place), { line_color: colour("fail"), line_dash: "dashed", legend_label: t("entry.limit") });
  zeroLine(lower, axis);
  lower.line(x, curve.difference.map(axis.place), { line_color: colour("text") });
  const points = lower.scatter({ field: "x" }, { field: "y" }, { source: source({ x, y: curve.difference.map(axis.place), row: curve.row, value: curve.difference.map(shown), marker: curve.row.map((row) => MARKERS[statusOf(row).name]), colour: curve.row.map((row) => statusColours[statusOf(row).name]) }), marker: { field: "marker" }, size: 8, line_color: { field: "colour" }, fill_color: { field: "colour" }, legend_label: t("difference") });
  equip(upper, [[t("step"), "@x"], [t("reference"), "@left"], [t("candidate"), "@right"], [t("difference"), "@difference"]], [a, b], openEntry);
  equip(lower, [[t("step"), "@x"], [t("difference"), "@value"]], [points], openEntry);
  return show(new Bokeh.Column({ children: [upper, lower], sizing_mode: "stretch_width" }), place);
}

// The limit and the floor of the checks that are sizes of a difference; a relative one counts in the reference's size.
function bounds(detail) {
  const size = toNumber(detail.sides?.[0][4]);
  const unit = { max_abs: 1, mean_abs: 1, rmse: 1, rms: 1, max: 1, rel_l2: size };
  return (detail.checks ?? []).flatMap(([metric, , limit, , floor]) => unit[metric] ? [["entry.limit", "fail", toNumber(limit) * unit[metric], metric], ["floor", "noise", toNumber(floor) * unit[metric], metric]] : []).filter(([, , at]) => Number.isFinite(at) && at > 0);
}

function histogram(place, detail) {
  const octaves = detail.octaves;
  const left = [], right = [], top = [];
  for (let at = 0; at < octaves.length; at += 2) { left.push(2 ** octaves[at]); right.push(2 ** (octaves[at] + 1)); top.push(octaves[at + 1]); }
  const made = figure({ x_axis_type: "log", y_axis_type: "log", height: 260, y_range: [0.5, Math.max(...top) * 2] });
  made.xaxis.axis_label = `|${t("difference")}|`; made.yaxis.axis_label = t("elements");
  const bars = made.quad({ left: { field: "left" }, right: { field: "right" }, top: { field: "top" }, bottom: 0.5, source: source({ left, right, top, size: left.map(shown) }), fill_color: colour("reference"), fill_alpha: 0.6, line_color: colour("back") });
  // Named beside their lines: a legend would be wider than a phone.
  bounds(detail).forEach(([name, shade, at, metric], place) => {
    made.line([at, at], [0.5, Math.max(...top) * 2], { line_color: colour(shade), line_width: 2, line_dash: "dashed" });
    made.add_layout(new Bokeh.Label({ x: at, y: 140 - 16 * place, y_units: "screen", x_offset: 4, text: `${t(name)} (${metric})`, text_color: colour(shade === "fail" ? "fail" : "text"), text_font_size: "11px" }));
  });
  equip(made, [["≥", "@size"], [t("elements"), "@top"]], [bars]);
  return show(made, place);
}

function scatterCharts(place, samples, worst) {
  const reference = [], candidate = [];
  for (let at = 0; at < samples.length; at += 2) { reference.push(toNumber(samples[at])); candidate.push(toNumber(samples[at + 1])); }
  const worstX = worst.map((one) => toNumber(one[1])), worstY = worst.map((one) => toNumber(one[2]));
  const finite = [...reference, ...candidate, ...worstX, ...worstY].filter(Number.isFinite);
  if (!finite.length) return;
  const low = Math.min(...finite), high = Math.max(...finite), room = (high - low || Math.abs(high) || 1) * 0.05;
  const against = figure({ height: 300, x_range: [low - room, high + room], y_range: [low - room, high + room] });
  against.xaxis.axis_label = t("reference"); against.yaxis.axis_label = t("candidate");
  against.line([low - room, high + room], [low - room, high + room], { line_color: colour("noise"), line_dash: "dashed" });
  const points = against.scatter({ field: "x" }, { field: "y" }, { source: source({ x: reference, y: candidate, left: reference.map(String), right: candidate.map(String) }), size: 6, fill_alpha: 0.5, fill_color: colour("reference"), line_color: colour("reference") });
  const marked = against.scatter({ field: "x" }, { field: "y" }, { source: source({ x: worstX, y: worstY, left: worstX.map(String), right: worstY.map(String) }), marker: "x", size: 11, line_width: 2, line_color: colour("fail") });
  const apart = figure({ height: 300 });
  apart.xaxis.axis_label = t("reference"); apart.yaxis.axis_label = t("difference");
  apart.add_layout(new Bokeh.Span({ location: 0, dimension: "width", line_color: colour("noise"), line_dash: "dashed" }));
  apart.scatter(reference, reference.map((value, at) => candidate[at] - value), { size: 6, fill_alpha: 0.5, fill_color: colour("reference"), line_color: colour("reference") });
  apart.scatter(worstX, worstX.map((value, at) => worstY[at] - value), { marker: "x", size: 11, line_width: 2, line_color: colour("fail") });
  equip(against, [[t("reference"), "@left"], [t("candidate"), "@right"]], [points, marked]);
  return show(new Bokeh.Column({ children: [against, apart], sizing_mode: "stretch_width" }), place);
}

let statusColours = {};
function readColours() {
  statusColours = Object.fromEntries(data.statuses.map((one) => [one.name, statusColour(one.name)]));
}

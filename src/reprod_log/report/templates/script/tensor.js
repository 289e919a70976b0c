// A tensor of both sides over two of its axes: reference, candidate, difference; and the error along each axis.
const GRIDS = ["reference", "candidate", "difference"];
const SMALLEST = 4, LARGEST = 28;

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

const rgb = (name) => colour(name).match(/[\d.]+/g).slice(0, 3).map(Number);
const mixed = (one, two, share) => `rgb(${one.map((part, at) => Math.round(part + (two[at] - part) * share)).join(" ")})`;

// How strong the colour of a value is, from 0 to 1. On the logarithmic scale six decades below the largest are seen.
function strength(value, largest, logarithmic) {
  const size = Math.abs(value) / largest;
  if (!size) return 0;
  return logarithmic ? Math.max(0.04, 1 + Math.log10(size) / 6) : size;
}

class Tensor {
  constructor(picture) {
    this.shape = picture.shape;
    this.places = picture.places;
    this.grids = picture.grids.map(floats);
    this.profiles = picture.profiles;
    const long = this.shape.map((_, axis) => axis).filter((axis) => this.places[axis].length > 1);
    this.axes = long;
    this.columns = long.at(-1);
    this.rows = long.length > 1 ? long.at(-2) : null;
    this.logarithmic = true;
    this.profile = long.reduce((best, axis) => this.contrast(axis) > this.contrast(best) ? axis : best, long[0]);
    this.at = this.worst();
  }

  // How unevenly the error lies along an axis: where it tells most, its profile is shown first.
  contrast(axis) {
    const values = this.profiles[axis][1].map(toNumber);
    const finite = values.filter(Number.isFinite).length;
    if (finite < values.length) return 1e9 * (1 + finite / values.length);
    const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
    return mean ? Math.max(...values) / mean : 0;
  }

  // The place in the grid of the element that differs most.
  worst() {
    const apart = this.grids[2];
    let most = -1, where = 0;
    apart.forEach((value, place) => { const size = Number.isNaN(value) ? Infinity : Math.abs(value); if (size > most) { most = size; where = place; } });
    const at = [];
    for (let axis = this.shape.length - 1; axis >= 0; axis--) { at[axis] = where % this.places[axis].length; where = Math.floor(where / this.places[axis].length); }
    return at;
  }

  place(at) { return at.reduce((sum, one, axis) => sum * this.places[axis].length + one, 0); }

  // The element in a row and a column of the picture.
  element(row, column) {
    const at = [...this.at];
    if (this.rows !== null) at[this.rows] = row;
    at[this.columns] = column;
    return at;
  }

  get height() { return this.rows === null ? 1 : this.places[this.rows].length; }
  get width() { return this.places[this.columns].length; }
}

const axisName = (tensor, axis) => t("tensor.axis", { axis, length: tensor.shape[axis] });

function drawGrid(canvas, tensor, number) {
  const grid = tensor.grids[number], cell = Number(canvas.dataset.cell), pen = canvas.getContext("2d");
  const [back, negative, positive, odd] = ["back", number === 2 ? "odd" : "reference", number === 2 ? "fail" : "candidate", "text"].map(rgb);
  // Values of both sides share a scale; over the whole tensor, so that slices can be compared.
  const largest = (of) => of.reduce((most, one) => Number.isFinite(one) ? Math.max(most, Math.abs(one)) : most, 0);
  const scale = number === 2 ? largest(grid) : Math.max(largest(tensor.grids[0]), largest(tensor.grids[1]));
  let strange = 0;
  for (let row = 0; row < tensor.height; row++) for (let column = 0; column < tensor.width; column++) {
    const value = grid[tensor.place(tensor.element(row, column))], x = column * cell, y = row * cell;
    pen.fillStyle = Number.isFinite(value) ? mixed(back, value < 0 ? negative : positive, strength(value, scale, number === 2 && tensor.logarithmic)) : mixed(odd, odd, 0);
    pen.fillRect(x, y, cell, cell);
    if (Number.isFinite(value)) continue;
    strange += 1;
    // No number has this colour; the sign tells NaN from the infinities.
    pen.strokeStyle = mixed(back, back, 0);
    pen.beginPath();
    const sign = Number.isNaN(value) ? [[0, 0, 1, 1], [1, 0, 0, 1]] : [[0, 0.5, 1, 0.5], ...(value > 0 ? [[0.5, 0, 0.5, 1]] : [])];
    for (const [left, top, right, bottom] of sign) { pen.moveTo(x + 1 + left * (cell - 2), y + 1 + top * (cell - 2)); pen.lineTo(x + 1 + right * (cell - 2), y + 1 + bottom * (cell - 2)); }
    pen.stroke();
  }
  pen.strokeStyle = mixed(odd, odd, 0);
  pen.lineWidth = 2;
  pen.strokeRect(tensor.at[tensor.columns] * cell, (tensor.rows === null ? 0 : tensor.at[tensor.rows]) * cell, cell, cell);
  pen.lineWidth = 1;
  const text = t("tensor.scale", { largest: shown(scale) }) + (strange ? ` · ${t("tensor.strange", { count: strange })}` : "");
  canvas.nextElementSibling.textContent = text;
  canvas.setAttribute("aria-label", `${t(GRIDS[number])}: ${text}`);
}

function profileChart(place, tensor) {
  const [x, difference, reference] = tensor.profiles[tensor.profile];
  const axis = onLogAxis(difference, reference);
  const made = figure({ height: 240, y_axis_type: "log", y_range: axis.range });
  made.xaxis.axis_label = axisName(tensor, tensor.profile); made.yaxis.axis_label = t("tensor.rms");
  made.xaxis.ticker = new Bokeh.BasicTicker({ min_interval: 1 });
  zeroLine(made, axis);
  made.line(x, reference.map(axis.place), { line_color: colour("noise"), line_dash: "dashed", legend_label: t("reference") });
  const columns = { x, y: difference.map(axis.place), text: difference.map(shown), other: reference.map(shown) };
  made.line(x, columns.y, { line_color: colour("fail"), line_width: 2, legend_label: t("difference") });
  const points = made.scatter({ field: "x" }, { field: "y" }, { source: source(columns), size: 6, line_color: colour("fail"), fill_color: colour("fail"), legend_label: t("difference") });
  equip(made, [[axisName(tensor, tensor.profile), "@x"], [t("difference"), "@text"], [t("reference"), "@other"]], [points]);
  return show(made, place);
}

function tensorPart(picture) {
  const tensor = new Tensor(picture);
  const reading = make("output", { class: "reading", "aria-live": "polite" });
  const profile = make("div", { class: "small chart" });
  const canvases = GRIDS.map(() => make("canvas", { role: "img", tabindex: 0 }));
  const tools = make("p", { class: "tools" });

  function draw() {
    const cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(360 / tensor.width), tensor.rows === null ? LARGEST : Math.floor(360 / tensor.height)));
    canvases.forEach((canvas, number) => {
      Object.assign(canvas, { width: tensor.width * cell, height: tensor.height * cell });
      canvas.dataset.cell = cell;
      drawGrid(canvas, tensor, number);
    });
    const place = tensor.place(tensor.at), index = tensor.at.map((one, axis) => tensor.places[axis][one]);
    reading.textContent = `[${index.join(", ")}] ${GRIDS.map((name, number) => `${t(name)} ${shown(tensor.grids[number][place])}`).join(" · ")}`;
  }

  const drawProfile = () => withLibrary(() => profileChart(profile, tensor));
  const choice = (name, title, chosen, choices, act) => {
    const select = make("select", { name, onchange: (event) => { act(event.target.value); drawTools(); draw(); } });
    options(select, choices, String(chosen));
    return make("label", {}, t(title), " ", select);
  };

  // Two axes are the picture's; of every other one a slider chooses the place.
  function drawTools() {
    const names = tensor.axes.map((axis) => [String(axis), axisName(tensor, axis)]);
    const swap = (name, other) => (value) => { if (tensor[other] === Number(value)) tensor[other] = tensor[name]; tensor[name] = Number(value); };
    const sliders = tensor.axes.filter((axis) => axis !== tensor.rows && axis !== tensor.columns).map((axis) => {
      const label = make("span", {}, `${axisName(tensor, axis)}: ${tensor.places[axis][tensor.at[axis]]}`);
      return make("label", {}, label, " ", make("input", { type: "range", min: 0, max: tensor.places[axis].length - 1, value: tensor.at[axis], "data-axis": axis,
        oninput: (event) => { tensor.at[axis] = Number(event.target.value); label.textContent = `${axisName(tensor, axis)}: ${tensor.places[axis][tensor.at[axis]]}`; draw(); } }));
    });
    tools.replaceChildren(
      ...(tensor.rows === null ? [] : [choice("rows", "tensor.rows", tensor.rows, names, swap("rows", "columns")), choice("columns", "tensor.columns", tensor.columns, names, swap("columns", "rows"))]),
      choice("shades", "tensor.shades", tensor.logarithmic ? "log" : "linear", [["log", t("tensor.log")], ["linear", t("tensor.linear")]], (value) => { tensor.logarithmic = value === "log"; }), ...sliders);
  }

  function move(row, column) {
    if (tensor.rows !== null) tensor.at[tensor.rows] = Math.max(0, Math.min(tensor.height - 1, row));
    tensor.at[tensor.columns] = Math.max(0, Math.min(tensor.width - 1, column));
    draw();
  }
  for (const canvas of canvases) {
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      move(Math.floor((event.clientY - box.top) / box.height * tensor.height), Math.floor((event.clientX - box.left) / box.width * tensor.width));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      move((tensor.rows === null ? 0 : tensor.at[tensor.rows]) + by[0], tensor.at[tensor.columns] + by[1]);
    });
  }
  drawTools();
  const total = tensor.shape.reduce((product, one) => product * one, 1);
  const along = choice("profile", "tensor.profile", tensor.profile, tensor.axes.map((axis) => [String(axis), axisName(tensor, axis)]), (value) => { tensor.profile = Number(value); drawProfile(); });
  const made = part(t("tensor"), make("p", { class: "dim" }, t("tensor.help", { shown: tensor.grids[0].length, total })), tools,
    make("div", { class: "tensors" }, ...canvases.map((canvas, number) => make("figure", {}, make("figcaption", {}, t(GRIDS[number])), canvas, make("small", { class: "dim" })))),
    make("p", {}, reading), make("p", { class: "tools" }, along), profile);
  made.classList.add("tensor");
  draw();
  drawProfile();
  return made;
}

// From the file, or from a server that has the recordings; else a line that says how to see it.
function showTensor(place, row, detail) {
  if (detail.picture) { place.replaceChildren(tensorPart(detail.picture)); return; }
  if (!detail.octaves && !detail.samples || !(detail.counts?.[0] > 1)) return;
  const note = (text) => place.replaceChildren(make("p", { class: "dim" }, text));
  if (!data.tensors) { note(t("tensor.elsewhere")); return; }
  note(t("serve.reading"));
  fetch(`${data.tensors}&entry=${row}`).then((answer) => answer.json()).then((found) => {
    if (state.entry !== row) return;
    if (found.picture) place.replaceChildren(tensorPart(found.picture)); else note(found.why[state.language]);
  }, (error) => note(t("serve.lost", { why: error.message })));
}

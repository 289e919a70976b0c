// The pages of `reprod serve`: look again every two seconds, redraw only what changed.
const EVERY = 2000;
library = Promise.resolve();

async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.text();
}

function say(text) {
  document.getElementById("state").textContent = text;
}

// Ask again and again; `changed` is called with the answer when it is another one than before.
function follow(address, changed) {
  let before = null;
  const look = async () => {
    try {
      const text = await ask(address());
      if (text !== before) { before = text; changed(JSON.parse(text)); }
    } catch (error) {
      say(t("serve.lost", { why: error.message }));
      before = null;
    }
    setTimeout(look, EVERY);
  };
  look();
  return () => { before = null; };
}

function line(cells) {
  return make("tr", {}, ...cells.map((one) => make("td", {}, one)));
}

const link = (address, one) => make("a", { href: `${address}?name=${encodeURIComponent(one.name)}` }, make("bdi", {}, one.title));

// A bar for each alignment of the same two sides, as high as the number of entries that do not pass.
function trend(counts) {
  if (counts.length < 2) return "";
  const most = Math.max(...counts, 1), text = `${counts[0]} → ${counts.at(-1)}`;
  return make("span", { class: "trend", title: counts.join(" → ") }, ...counts.slice(-24).map((one) => make("i", { style: `--h:${Math.round(100 * one / most)}`, class: one ? null : "none" })), " ", text);
}

function drawList(items) {
  const alignments = items.filter((one) => one.kind === "alignment"), recordings = items.filter((one) => one.kind === "recording");
  const none = (columns) => [make("tr", {}, make("td", { colspan: columns }, t("serve.none")))];
  document.querySelector("#alignments tbody").replaceChildren(...(alignments.length ? alignments.map((one) => line([
    make("span", { class: one.status ? "st " + one.status : "dim" }, `${one.mark} ${one.status}`), link("/alignment", one), make("bdi", {}, one.says[state.language] ?? one.headline), trend(one.trend),
    make("code", {}, one.first), one.sides.some(Boolean) ? make("span", {}, make("bdi", {}, one.sides[0]), " → ", make("bdi", {}, one.sides[1])) : "", one.time])) : none(7)));
  document.querySelector("#recordings tbody").replaceChildren(...(recordings.length ? recordings.map((one) => line([
    make("span", {}, link("/recording", one), " ", make("small", {}, one.sides[0])), one.growing ? "● " + t("serve.growing") : t("serve.complete"),
    one.steps ?? "–", (one.bytes / 1e6).toFixed(1), one.time])) : none(5)));
  for (const select of document.querySelectorAll("form select")) {
    const chosen = select.value;
    if ([...select.options].map((one) => one.value).join("\n") === recordings.map((one) => one.name).join("\n")) continue;
    options(select, recordings.map((one) => [one.name, one.title]), chosen);
  }
  say("");
}

let chosenCurve = "";
let latest = null;

function liveChart(place, curve) {
  const made = figure({ height: 360 });
  made.xaxis.ticker = new Bokeh.BasicTicker({ min_interval: 1 });
  const left = curve.values.map(([step, value]) => [step, toNumber(value)]), right = curve.other.map(([step, value]) => [step, toNumber(value)]);
  made.yaxis.axis_label = asText(curve.name); made.xaxis.axis_label = t("step");
  made.line(left.map((one) => one[0]), left.map((one) => one[1]), { line_color: colour("reference"), line_width: 2, legend_label: asText(data.name) });
  const points = made.scatter({ field: "x" }, { field: "y" }, { source: source({ x: left.map((one) => one[0]), y: left.map((one) => one[1]), text: left.map((one) => String(one[1])) }), size: 5, line_color: colour("reference"), fill_color: colour("reference") });
  if (right.length) made.line(right.map((one) => one[0]), right.map((one) => one[1]), { line_color: colour("candidate"), line_width: 2, line_dash: "dashed", legend_label: asText(document.getElementById("with").value) });
  equip(made, [[t("step"), "@x"], [t("entry.value"), "@text"]], [points]);
  return show(made, place);
}

function drawRecording(found) {
  latest = found;
  const steps = found.steps.length ? `${t("step")} ${found.steps[0]}–${found.steps[1]}, ` : "";
  say(`${found.complete ? t("serve.complete") : "● " + t("serve.growing")} · ${steps}${t("entries.count", { count: found.entries })} ${found.notes.map((note) => note[state.language]).join(" · ")}`);
  document.querySelector("#provenance tbody").replaceChildren(...Object.entries(found.provenance).map(([name, value]) => line([name, make("bdi", {}, value)])));
  const rows = found.keys.map(([key, dtype, shape]) => line([make("bdi", {}, key), dtype, shape.join("×") || "scalar"]));
  if (found.left_out) rows.unshift(make("tr", {}, make("td", { colspan: 3 }, t("table.more", { count: found.left_out, how: "reprod show --all" }))));
  document.querySelector("#keys tbody").replaceChildren(...rows);
  document.getElementById("live-curves").hidden = !found.curves.length;
  if (!found.curves.length) return;
  if (!found.curves.some((one) => one.name === chosenCurve)) chosenCurve = found.curves[0].name;
  options(document.getElementById("curve"), found.curves.map((one) => [one.name, `${one.name} (${one.values.length})`]), chosenCurve);
  liveChart(document.getElementById("curve-chart"), found.curves.find((one) => one.name === chosenCurve));
}

function startServe() {
  let again = () => {};
  startPage(() => {
    readColours();
    if (latest) drawRecording(latest);
    again();
  });
  readColours();
  if (document.getElementById("alignments")) again = follow(() => "/items.json", drawList);
  if (document.getElementById("curve-chart")) {
    const other = document.getElementById("with");
    document.getElementById("curve").addEventListener("change", (event) => { chosenCurve = event.target.value; drawRecording(latest); });
    other.addEventListener("change", () => other.form.submit());
    again = follow(() => `/recording.json?name=${encodeURIComponent(data.name)}&with=${encodeURIComponent(other.value)}`, drawRecording);
  }
}
startServe();

"use strict";
// Shared by the other files: the data, the words in the reader's language, numbers, and elements made of text only.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const state = { language: root.lang, entry: null, scroll: 0, title: document.title };

function remembered(name, value) {
  // A page opened from disk may not be allowed to remember anything.
  try {
    if (value === undefined) return localStorage.getItem("reprod_log." + name);
    localStorage.setItem("reprod_log." + name, value);
  } catch { /* then it is not remembered */ }
  return null;
}

function t(id, values = {}) {
  const sentence = data.words[state.language][id];
  if (sentence === undefined) return id;
  // {count:entry|entries} is a number with its noun; # stands for the number where it does not come first.
  return sentence.replace(/\{(\w+)(?::([^{}|]*)\|([^{}|]*))?\}/g, (_, name, one, many) => {
    if (one === undefined) return String(values[name]);
    const noun = Number(values[name]) === 1 ? one : many;
    return noun.includes("#") ? noun.replaceAll("#", values[name]) : `${values[name]} ${noun}`;
  });
}

// Text that lies packed in the page.
async function unpacked(element) {
  const packed = Uint8Array.from(atob(element.textContent), (one) => one.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// A sentence that the page has in every language, by its number.
const said = (number, of = data) => of.sentences[state.language][number] ?? "";

function translate() {
  root.lang = state.language === "zh" ? "zh-CN" : state.language;
  for (const one of document.querySelectorAll("[data-t]")) one.textContent = t(one.dataset.t);
  for (const one of document.querySelectorAll("[data-say]")) one.textContent = said(one.dataset.say);
  for (const name of ["placeholder", "title", "aria-label"]) {
    for (const one of document.querySelectorAll(`[data-t-${name}]`)) one.setAttribute(name, t(one.getAttribute(`data-t-${name}`)));
  }
  for (const one of document.querySelectorAll("a.key[data-e] > bdi")) one.textContent = inWords(Number(one.parentElement.dataset.e));
  const others = Object.keys(data.words).filter((one) => one !== state.language);
  document.getElementById("language").textContent = data.words[others[0]].language;
}

// Language and light or dark are the reader's choice on every page; what is drawn is drawn again.
let drawPage = () => {};

function switchTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remembered("theme", root.dataset.theme);
  drawPage();
}

function switchLanguage() {
  const all = Object.keys(data.words);
  state.language = all[(all.indexOf(state.language) + 1) % all.length];
  remembered("language", state.language);
  translate();
  drawPage();
}

function startPage(drawnAgain) {
  drawPage = drawnAgain;
  root.classList.add("scripted");
  const theme = remembered("theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const language = remembered("language") ?? (navigator.language.startsWith("zh") ? "zh" : state.language);
  if (language in data.words) state.language = language;
  translate();
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("language").addEventListener("click", switchLanguage);
}

// An element with text or other elements inside; nothing is ever read as HTML.
function make(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...content.filter((one) => one !== null && one !== undefined).map((one) => one instanceof Node ? one : String(one)));
  return made;
}

// Numbers travel as numbers, or as "nan", "inf", "-inf".
const toNumber = (value) => value === null || value === undefined ? null : typeof value === "number" ? value : value === "nan" ? NaN : value === "inf" ? Infinity : -Infinity;

function shown(value) {
  const number = toNumber(value);
  if (number === null) return "–";
  if (!Number.isFinite(number)) return String(number);
  const size = Math.abs(number);
  if (number === 0 || (size >= 0.001 && size < 100000)) return String(Number(number.toPrecision(6)));
  return number.toExponential(2);
}

// step 0 · forward · layers.5.ln1 ↔ blocks.5.norm1 · output, in the reader's language; a plain name stays as it is.
const KEY = /^(?:([\w.+-]+)@)?step(\d+)\/([a-z]+)\/(.*?)(?:#(\d+))?(?::([^:#/]+))?$/s;
function inWords(row) {
  const key = data.keys[row], other = data.partners[row] || key;
  const both = (one, two) => one === two ? one : `${one} ↔ ${two}`;
  const ours = data.phase[row] ? KEY.exec(key) : null, theirs = KEY.exec(other);
  if (!ours || !theirs) return both(key, other);
  const part = (at, whole) => both(ours[at] || whole, theirs[at] || whole);
  let place = t("place.step", { step: ours[2], name: [part(3, ""), part(4, "(model)"), part(6, "")].filter(Boolean).join(" · ") });
  if (Number(ours[5])) place = t("place.call", { place, call: Number(ours[5]) + 1 });
  return ours[1] ? t("place.run", { run: ours[1], place }) : place;
}
const keysOf = (row) => data.partners[row] ? `${data.keys[row]} ↔ ${data.partners[row]}` : data.keys[row];

const statusOf = (row) => data.statuses[data.status[row]];
const badge = (row) => {
  const one = statusOf(row);
  return make("span", { class: "st " + one.name, title: t("status." + one.name) }, `${one.mark} ${one.name}`);
};

function options(select, choices, chosen) {
  select.replaceChildren(...choices.map(([value, text]) => {
    const one = make("option", { value }, text);
    one.selected = value === chosen;
    return one;
  }));
}

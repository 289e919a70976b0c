// The model tree: arrow keys move and fold, a name shows the module's entries, its order can follow the error.
const tree = document.getElementById("tree");

const nodes = () => [...tree.querySelectorAll(".node")].filter((one) => one.checkVisibility());

function chooseModule(path) {
  filter.module = filter.module === path ? "" : path;
  applyFilter();
}

function moveInTree(event) {
  const here = event.target.closest(".node");
  if (!here) return;
  const folded = here.parentElement.querySelector(":scope > details");
  const all = nodes(), at = all.indexOf(here);
  const go = (one) => { if (one) { one.querySelector("a").focus(); event.preventDefault(); } };
  if (event.key === "ArrowDown") go(all[at + 1]);
  else if (event.key === "ArrowUp") go(all[at - 1]);
  else if (event.key === "Home") go(all[0]);
  else if (event.key === "End") go(all.at(-1));
  else if (event.key === "ArrowRight" && folded) {
    if (folded.open) go(all[at + 1]); else { folded.open = true; event.preventDefault(); }
  } else if (event.key === "ArrowLeft") {
    if (folded && folded.open) { folded.open = false; event.preventDefault(); }
    else go(here.closest("ul")?.parentElement.closest("li")?.querySelector(".node"));
  }
}

function sortTree(byError) {
  for (const list of tree.querySelectorAll("ul")) {
    const items = [...list.children];
    items.forEach((item, at) => { item.dataset.order ??= at; });
    const worst = (item) => {
      const path = item.querySelector("a").dataset.path;
      return errors.get(path) ?? -1;
    };
    items.sort((a, b) => byError ? worst(b) - worst(a) || a.dataset.order - b.dataset.order : a.dataset.order - b.dataset.order);
    list.append(...items);
  }
}

// The largest relative error below each path.
const errors = new Map();
function collectErrors() {
  data.path.forEach((path, row) => {
    const value = toNumber(data.numbers.rel_l2[row]);
    const error = value === null ? 0 : Number.isNaN(value) ? Infinity : value;
    const phase = data.phase[row];
    const inside = ["data", "loss", "lr", "metric"].includes(phase);
    const names = inside ? [`(${phase})`, `(${phase}).${path}`] : path.split(".").map((_, at, parts) => parts.slice(0, at + 1).join("."));
    for (const name of names) errors.set(name, Math.max(errors.get(name) ?? 0, error));
  });
}

function setUpTree() {
  collectErrors();
  tree.addEventListener("keydown", moveInTree);
  tree.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-path]");
    if (!link) return;
    event.preventDefault();
    chooseModule(link.dataset.path);
  });
  document.getElementById("tree-sort").addEventListener("change", (event) => sortTree(event.target.value === "error"));
}

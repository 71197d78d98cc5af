// Keyboard shortcuts: g f and g a navigate, / filters, t switches the theme, ? lists them. Views add their own.

import { h } from "./dom.js";

const KEYS = [
  ["g f", "fleet"],
  ["g a", "alerts"],
  ["/", "filter the fleet or the alerts"],
  ["j, k", "next, previous run or alert; Enter opens the run"],
  ["x", "select the focused run or alert"],
  ["a", "acknowledge the selected alerts, else the focused one"],
  ["← →", "on a chart: pan by a tenth of the range"],
  ["+ −", "on a chart: zoom in, zoom out; 0 shows all steps"],
  ["[ ]", "on a run: previous step, next step"],
  ["t", "light or dark theme"],
  ["?", "keyboard shortcuts"],
];

export function shortcuts({ go }) {
  let waiting = "";
  const actions = { gf: () => go("/"), ga: () => go("/alerts"), t: turn, "?": explain, "/": filter };
  document.addEventListener("keydown", (event) => {
    if (typing(event.target) || document.querySelector("dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
    const action = actions[waiting + event.key];
    waiting = event.key === "g" ? "g" : "";
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.getElementById("theme").addEventListener("click", turn);
  document.getElementById("keys").addEventListener("click", explain);
}

export const typing = (element) =>
  /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && element.type !== "checkbox" && element.type !== "radio";

function filter() {
  document.querySelector("[data-filter]")?.focus();
}

function turn() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("trmon.theme", dark ? "light" : "dark");
  window.dispatchEvent(new Event("themechange"));
}

function explain() {
  const rows = KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("code", {}, key)), h("td", {}, what)));
  const close = h("button", { onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { "aria-label": "Keyboard shortcuts" },
    h("h2", {}, "Keyboard"),
    h("table", {}, rows),
    close,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

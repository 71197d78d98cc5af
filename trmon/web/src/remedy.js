// The fix: in words, and as configuration for the user's trainer.

import { copyButton } from "./copybutton.js";
import { fill, h } from "./dom.js";
import { read, write } from "./permalink.js";

const TRAINERS = { verl: "verl", trl: "TRL" };
const KEPT = "trmon.trainer";

export function remedy({ remedy: given, quadrant }) {
  const after = h("p", { class: "quiet" }, `Correction: ${quadrant.advice}`);
  return [
    h("p", {}, h("span", { class: "strong" }, "Do this: "), given.fix),
    configuration(given),
    h("details", {}, h("summary", { class: "quiet" }, "If it persists"), h("p", {}, given.persists), after),
  ];
}

/** Show the options of one trainer at a time: the one in the address, or the one chosen last. */
function configuration(given) {
  const keys = Object.keys(TRAINERS).filter((key) => Object.keys(given[key]).length);
  if (!keys.length) return null;
  const lines = h("pre", { class: "config", tabindex: "0" });
  const tabs = keys.map((key) => h("button", { role: "tab", onclick: () => choose(key) }, TRAINERS[key]));
  const show = (key) => {
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(keys[i] === key)));
    fill(lines, options(given[key]));
  };
  const choose = (key) => {
    localStorage.setItem(KEPT, key);
    write({ tab: key });
    show(key);
  };
  show([read().tab, localStorage.getItem(KEPT)].find((key) => keys.includes(key)) ?? keys[0]);
  const list = h("div", { class: "row", role: "tablist", "aria-label": "Trainer" }, tabs);
  const copy = copyButton("Copy", () => lines.textContent, { "aria-label": "Copy the configuration" });
  return h("div", {}, h("div", { class: "row between" }, list, copy), lines);
}

const options = (given) =>
  Object.entries(given)
    .map(([option, value]) => `${option}=${value}`)
    .join("\n");

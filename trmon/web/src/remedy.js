// The fix: in words, and as configuration for the user's trainer.

import { copyButton } from "./copybutton.js";
import { fill, h } from "./dom.js";
import { read, write } from "./permalink.js";

const TRAINERS = { verl: "verl", trl: "TRL" };
const KEPT = "trmon.trainer";

/** What comes before a fix; a run that has ended cannot follow it any more. */
export const whenToDo = ({ has_ended: hasEnded }) => (hasEnded ? "For the next run: " : "Do this: ");

export function remedy(diagnosis) {
  const { remedy: given, quadrant } = diagnosis;
  const after = h("p", { class: "quiet" }, `Correction: ${quadrant.advice}`);
  return [
    h("p", {}, h("span", { class: "strong" }, whenToDo(diagnosis)), given.fix),
    configuration(given),
    h("details", {}, h("summary", { class: "quiet" }, "If it persists"), h("p", {}, given.persists), after),
  ];
}

/** Show the options of one trainer at a time: the one in the address, or the one chosen last. */
function configuration(given) {
  const known = (key) => Object.entries(given[key]);
  const inWords = (key) => Object.entries(given[`${key}_in_words`]);
  const keys = Object.keys(TRAINERS).filter((key) => known(key).length + inWords(key).length);
  if (!keys.length) return null;
  const lines = h("pre", { class: "config" });
  const byHand = h("div", { class: "small" });
  const tabs = keys.map((key) => h("button", { role: "tab", onclick: () => choose(key) }, TRAINERS[key]));
  const show = (key) => {
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(keys[i] === key)));
    lines.hidden = copy.hidden = !known(key).length;
    fill(lines, known(key).map(([option, value]) => `${option}=${value}`).join("\n"));
    fill(byHand, inWords(key).length > 0 && unknownValues(inWords(key)));
  };
  const choose = (key) => {
    localStorage.setItem(KEPT, key);
    write({ tab: key });
    show(key);
  };
  const list = h("div", { class: "row", role: "tablist", "aria-label": "Trainer" }, tabs);
  const copy = copyButton("Copy", () => lines.textContent, { "aria-label": "Copy the configuration" });
  show([read().tab, localStorage.getItem(KEPT)].find((key) => keys.includes(key)) ?? keys[0]);
  return h("div", { class: "snippet" }, h("div", { class: "row between" }, list, copy), lines, byHand);
}

/** The options that cannot be pasted, as the configuration of the run does not tell their present value. */
function unknownValues(options) {
  const items = options.map(([option, words]) => h("li", {}, h("code", {}, option), `: ${words}`));
  return [h("p", { class: "quiet" }, "To set by hand; the run's configuration does not tell the value:"), h("ul", {}, items)];
}

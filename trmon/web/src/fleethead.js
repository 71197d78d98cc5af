// The line of a group of runs: it opens and closes the lines under it.

import { fill, h } from "./dom.js";
import { plural } from "./words.js";

export class Head {
  #shown = "";

  constructor(turn) {
    this.element = h("tr", { role: "row", class: "head" });
    this.turn = turn;
  }

  /** Render a head; the DOM is untouched if nothing changed. */
  show({ key, head, text, members, isOpen, kind }) {
    const now = JSON.stringify([head, text, members.length, isOpen]);
    if (now === this.#shown) return;
    this.#shown = now;
    this.element.dataset.kind = kind;
    this.element.dataset.need = kind === "stalled" ? "now" : "none";
    const said = kind === "stalled" ? text : `${plural(members.length, "run")}: ${text}`;
    const button = h(
      "button",
      { class: "plain oneline", "aria-expanded": String(isOpen), title: said, onclick: () => this.turn(key) },
      h("span", { class: `kind kind-${kind}` }, head),
      " ",
      h("span", { class: "why" }, said),
    );
    fill(this.element, h("td", { role: "cell", "aria-colspan": "10" }, button));
  }
}

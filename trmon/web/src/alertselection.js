// Which alerts are selected, by episode: a selection survives updates and filters.

import { h } from "./dom.js";
import { episode } from "./incidents.js";

export class AlertSelection {
  #keys = new Set();
  #lines = [];
  #anchor = null;

  /** `changed` is called when alerts are selected or deselected. */
  constructor(changed) {
    this.changed = changed;
  }

  has(alert) {
    return this.#keys.has(episode(alert));
  }

  get size() {
    return this.#keys.size;
  }

  /** Return a checkbox for the line that `lineOf()` returns; a row that is drawn anew gets a new one, so that the focus can follow. */
  box(name, lineOf) {
    const box = h("input", { type: "checkbox", "aria-label": `Select ${name}` });
    box.addEventListener("click", (event) => this.choose(lineOf(), box.checked, event.shiftKey));
    this.mark(box, lineOf());
    return box;
  }

  /** Show in a checkbox whether the alerts of a line are selected. */
  mark(box, { alerts }) {
    const chosen = alerts.filter((alert) => this.has(alert)).length;
    box.checked = chosen === alerts.length;
    box.indeterminate = chosen > 0 && chosen < alerts.length;
  }

  /** Select exactly these alerts. */
  set(alerts) {
    this.#keys = new Set(alerts.map(episode));
    this.changed();
  }

  /** Take the lines on screen in their order; alerts that no longer fire leave. */
  follow(lines, firing) {
    this.#lines = lines;
    const keys = new Set(firing.map(episode));
    for (const key of this.#keys) if (!keys.has(key)) this.#keys.delete(key);
  }

  /** Select or deselect the alerts of a line; with Shift, of every line from the one that was clicked last. */
  choose(line, isChosen, isRange) {
    const at = this.#lines.findIndex(({ key }) => key === line.key);
    const from = isRange ? this.#lines.findIndex(({ key }) => key === this.#anchor) : -1;
    const range = at < 0 || from < 0 ? [line] : this.#lines.slice(Math.min(at, from), Math.max(at, from) + 1);
    for (const alert of range.flatMap(({ alerts }) => alerts)) {
      if (isChosen) this.#keys.add(episode(alert));
      else this.#keys.delete(episode(alert));
    }
    this.#anchor = line.key;
    this.changed();
  }
}

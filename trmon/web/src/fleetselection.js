// Which runs of the fleet are selected, by project and name: a selection survives updates, sorting and filtering.

import { h } from "./dom.js";

export const keyOf = (run) => `${run.project}/${run.run}`;

export class Selection {
  #keys = new Set();
  #lines = [];
  #anchor = null;

  /** `changed` is called when runs are selected or deselected by a person. */
  constructor(changed) {
    this.changed = changed;
    this.every = h("input", { type: "checkbox", "aria-label": "Select every run that matches the filters" });
    this.every.addEventListener("change", () => this.#chooseEvery(this.every.checked));
  }

  has(run) {
    return this.#keys.has(keyOf(run));
  }

  get size() {
    return this.#keys.size;
  }

  keys() {
    return [...this.#keys];
  }

  /** Select exactly these runs. */
  set(keys) {
    this.#keys = new Set(keys);
    this.changed();
  }

  /** Take the lines in their order and the runs that match the filters; runs that no longer exist leave. */
  follow(lines, matching, runs) {
    this.#lines = lines;
    this.matching = matching;
    for (const key of this.#keys) if (!runs.has(key)) this.#keys.delete(key);
    const n = matching.filter((run) => this.has(run)).length;
    this.every.checked = n > 0 && n === matching.length;
    this.every.indeterminate = n > 0 && n < matching.length;
  }

  /** Select or deselect the run of a line; with Shift, every line from the one that was clicked last to this one. */
  choose(line, isChosen, isRange) {
    const at = this.#lines.findIndex(({ key }) => key === line.key);
    const from = isRange ? this.#lines.findIndex(({ key }) => key === this.#anchor) : -1;
    const range = at < 0 || from < 0 ? [line] : this.#lines.slice(Math.min(at, from), Math.max(at, from) + 1);
    for (const { run } of range) if (run) this.#put(run, isChosen);
    this.#anchor = line.key;
    this.changed();
  }

  #chooseEvery(isChosen) {
    for (const run of this.matching) this.#put(run, isChosen);
    this.changed();
  }

  #put(run, isChosen) {
    if (isChosen) this.#keys.add(keyOf(run));
    else this.#keys.delete(keyOf(run));
  }
}

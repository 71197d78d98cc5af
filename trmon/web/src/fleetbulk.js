// The bar of the selected runs of the fleet, and what can be done with all of them at once.

import { refusal } from "./action.js";
import { runPath, send } from "./api.js";
import { compareAddress } from "./compare.js";
import { asked, author, said } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { keyOf } from "./fleetselection.js";
import { plural, step } from "./words.js";

const AT_ONCE = 4; // Requests at a time: browsers open six connections to a service, and one is the event stream's.
const MOST_COMPARED = 8;
const NAMED = 100;
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]*"; // As the service checks names.

export class BulkBar {
  #working = null;
  #outcome = null;

  /** `found()` returns the fleet's runs by key; `changed(changes)` takes the new fields of runs by key. */
  constructor(selection, { found, changed }) {
    this.selection = selection;
    this.found = found;
    this.changed = changed;
    this.count = h("p", { role: "status", class: "strong" });
    this.buttons = h("div", { class: "row" });
    this.result = h("div", { role: "alert" });
    this.element = h(
      "section",
      { class: "card selected", "aria-label": "Selected runs", hidden: true },
      h("div", { class: "row" }, this.count, this.buttons),
      this.result,
    );
  }

  draw() {
    const runs = this.#runs();
    const now = JSON.stringify([runs.map((run) => [keyOf(run), run.archived, run.tags]), this.#hidden(), this.#working]);
    this.element.hidden = runs.length === 0 && !this.#outcome;
    if (now === this.drawn) return;
    this.drawn = now;
    const count = `${plural(runs.length, "run")} selected`;
    this.count.textContent = this.#working ?? (this.#hidden() ? `${count}, ${step(this.#hidden())} not shown` : count);
    fill(this.buttons, this.#actions(runs));
  }

  #runs() {
    return this.selection.keys().map((key) => this.found().get(key));
  }

  /** Return how many selected runs the filters hide. */
  #hidden() {
    if (!this.selection.size) return 0;
    const matching = new Set(this.selection.matching?.map(keyOf));
    return this.selection.keys().filter((key) => !matching.has(key)).length;
  }

  #actions(runs) {
    const disabled = this.#working !== null;
    const button = (text, act) => h("button", { disabled, onclick: () => act(runs) }, text);
    const matching = this.selection.matching ?? [];
    const isEvery = matching.every((run) => this.selection.has(run));
    return [
      runs.length > 0 && !isEvery && button(`Select all ${step(matching.length)}`, () => this.selection.set(union(this.selection, matching))),
      runs.length >= 2 && runs.length <= MOST_COMPARED && h("a", { class: "button", href: compareAddress(runs) }, "Compare"),
      runs.some((run) => !run.archived) && button("Archive", (given) => this.#archive(given, true)),
      runs.some((run) => run.archived) && button("Unarchive", (given) => this.#archive(given, false)),
      runs.length > 0 && [
        button("Owner …", (given) => this.#owner(given)),
        button("Add tag …", (given) => this.#addTag(given)),
        runs.some((run) => run.tags.length) && button("Remove tag …", (given) => this.#removeTag(given)),
        button("Note …", (given) => this.#note(given)),
        button("Delete …", (given) => this.#delete(given)),
      ],
      button(runs.length ? "Clear" : "Close", () => this.#clear()),
    ];
  }

  #clear() {
    this.#tell(null);
    this.selection.set([]);
  }

  #archive(runs, archived) {
    const words = archived ? ["Archiving", "archived"] : ["Unarchiving", "unarchived"];
    return this.#each(runs, words, (run) => change(run, { archived }));
  }

  async #owner(runs) {
    const owners = [...new Set([...this.found().values()].map(({ owner }) => owner).filter(Boolean))].sort();
    const known = h("datalist", { id: "owners" }, owners.map((value) => h("option", { value })));
    const field = h("input", { required: true, maxlength: 128, list: "owners" });
    const isGiven = await this.#asked("Set the owner", runs, [h("label", {}, "Owner", field), known], "Set owner");
    const owner = field.value.trim();
    if (isGiven) await this.#each(runs, ["Changing", "changed"], (run) => change(run, { owner }));
  }

  async #addTag(runs) {
    const title = "Letters, digits, '.', '_' and '-', a letter or digit first";
    const field = h("input", { required: true, maxlength: 128, pattern: NAME, title });
    const isGiven = await this.#asked("Add a tag", runs, [h("label", {}, "Tag", field)], "Add tag");
    if (isGiven) await this.#each(runs, ["Tagging", "tagged"], (run) => change(run, { add_tags: [field.value] }));
  }

  async #removeTag(runs) {
    const tags = [...new Set(runs.flatMap((run) => run.tags))].sort();
    const field = h("select", {}, tags.map((tag) => h("option", { value: tag }, tag)));
    const isGiven = await this.#asked("Remove a tag", runs, [h("label", {}, "Tag", field)], "Remove tag");
    const having = runs.filter((run) => run.tags.includes(field.value));
    if (isGiven) await this.#each(having, ["Changing", "changed"], (run) => change(run, { remove_tags: [field.value] }));
  }

  async #note(runs) {
    const text = h("textarea", { rows: 3, required: true, maxlength: 2000 });
    let note = null;
    const isGiven = await this.#asked("Write a note", runs, [h("label", {}, "Note", text), author()], "Add note", (form) => {
      note = { text: text.value, author: said(form) };
    });
    const write = (run) => send("POST", `${runPath(run.project, run.run)}/notes`, note);
    if (isGiven) await this.#each(runs, ["Writing to", "noted"], (run) => write(run).then(() => run));
  }

  async #delete(runs) {
    const n = String(runs.length);
    const field = h("input", { required: true, autocomplete: "off", inputmode: "numeric" });
    const fields = [
      h("p", {}, "All their data is deleted: steps, alerts and notes. This cannot be undone."),
      runs.length > 1 && h("label", {}, `Type the number of runs, ${n}, to confirm`, field),
    ];
    const isGiven = await this.#asked("Delete", runs, fields, `Delete ${plural(runs.length, "run")}`, () => {
      if (runs.length > 1 && field.value.trim() !== n) throw new Error(`Type ${n} to delete the ${n} runs.`);
    });
    const remove = (run) => send("DELETE", runPath(run.project, run.run)); // null: no run is left.
    if (isGiven) await this.#each(runs, ["Deleting", "deleted"], remove);
  }

  /** Ask in a dialog that names the runs; resolves to whether it was confirmed. */
  #asked(what, runs, fields, action, check = () => {}) {
    const names = runs.slice(0, NAMED).map((run) => h("li", {}, keyOf(run)));
    const more = runs.length > NAMED && h("li", {}, `and ${step(runs.length - NAMED)} more`);
    return asked(`${what}: ${plural(runs.length, "run")}`, [h("ul", { class: "names" }, names, more), fields], action, check);
  }

  /** Change runs, a few at a time; those that fail stay selected, and each is named with its reason. */
  async #each(runs, [doing, did], act) {
    if (this.#working !== null) return;
    const waiting = [...runs];
    const changes = new Map();
    const failures = new Map();
    this.#tell(null);
    const work = async () => {
      for (let run = waiting.shift(); run; run = waiting.shift()) {
        this.#working = `${doing} ${step(runs.length - waiting.length)} of ${plural(runs.length, "run")} …`;
        this.draw();
        try {
          changes.set(keyOf(run), await act(run));
        } catch (error) {
          failures.set(refusal(error), [...(failures.get(refusal(error)) ?? []), keyOf(run)]);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    this.#working = null;
    const failed = [...failures.values()].flat();
    this.#tell(failed.length ? outcome(changes.size, runs.length, did, failures) : null);
    if (failed.length) this.selection.set(failed);
    await this.changed(changes);
  }

  #tell(outcome) {
    this.#outcome = outcome;
    this.drawn = "";
    fill(this.result, outcome);
    this.draw();
  }
}

const change = (run, fields) => send("PATCH", runPath(run.project, run.run), fields);

const union = (selection, runs) => [...selection.keys(), ...runs.map(keyOf)];

function outcome(n, of, did, failures) {
  const reasons = [...failures].map(([reason, keys]) => h("li", {}, `${keys.join(", ")}: ${reason}`));
  return [
    h("p", {}, `${step(n)} of ${plural(of, "run")} ${did}. Not ${did}:`),
    h("ul", { class: "failures" }, reasons),
  ];
}

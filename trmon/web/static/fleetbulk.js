// The bar of the selected runs of the fleet, and what can be done with all of them at once.

import { compareAddress, keyOf, runPath, send } from "./api.js";
import { asked, author, said } from "./dialogs.js";
import { h, refusal } from "./dom.js";
import { names, SelectionBar } from "./lists.js";
import { plural, step } from "./words.js";

const AT_ONCE = 4; // Requests at a time: browsers open six connections to a service, and one is the event stream's.
const MOST_COMPARED = 8;
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]*"; // As the service checks names.

export class BulkBar extends SelectionBar {
  #working = null;

  /** `found()` returns the fleet's runs by key; `changed(changes)` takes the new fields of runs by key. */
  constructor(selection, { found, changed }) {
    super(selection, "run");
    Object.assign(this, { found, changed });
  }

  /** Render. Args: matching: the runs that match the filters. */
  draw(matching = this.matching) {
    this.matching = matching;
    const runs = this.selection.keys().map((key) => this.found().get(key));
    const state = runs.map((run) => [keyOf(run), run.archived, run.tags]);
    this.render(runs, matching, { state, working: this.#working, offered: (every) => [every, this.#actions(runs)] });
  }

  #actions(runs) {
    const disabled = this.#working !== null;
    const button = (text, act) => h("button", { disabled, onclick: () => act(runs) }, text);
    if (!runs.length) return null;
    return [
      runs.length >= 2 && runs.length <= MOST_COMPARED && h("a", { class: "button", href: compareAddress(runs) }, "Compare"),
      runs.some((run) => !run.archived) && button("Archive", (given) => this.#archive(given, true)),
      runs.some((run) => run.archived) && button("Unarchive", (given) => this.#archive(given, false)),
      button("Owner …", (given) => this.#owner(given)),
      button("Add tag …", (given) => this.#addTag(given)),
      runs.some((run) => run.tags.length) && button("Remove tag …", (given) => this.#removeTag(given)),
      button("Note …", (given) => this.#note(given)),
      button("Delete …", (given) => this.#delete(given)),
    ];
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
    return asked(`${what}: ${plural(runs.length, "run")}`, [names(runs.map(keyOf)), fields], action, check);
  }

  /** Change runs, a few at a time; those that fail stay selected, and each is named with its reason. */
  async #each(runs, [doing, did], act) {
    if (this.#working !== null) return;
    const waiting = [...runs];
    const changes = new Map();
    const failures = new Map();
    this.tell(null);
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
    const inOrder = (keys) => runs.map(keyOf).filter((key) => keys.includes(key));
    const reasons = [...failures].map(([reason, keys]) => `${inOrder(keys).join(", ")}: ${reason}`);
    this.tell(failed.length ? this.outcome(changes.size, runs.length, did, reasons) : null);
    this.draw();
    if (failed.length) this.selection.set(failed);
    await this.changed(changes);
  }
}

const change = (run, fields) => send("PATCH", runPath(run.project, run.run), fields);

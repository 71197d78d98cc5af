// The bar of the selected alerts: acknowledges them at once and names those that were not.

import { refusal } from "./action.js";
import { send } from "./api.js";
import { asked, author, said } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { plural, step } from "./words.js";

const MOST = 500; // As many as the service takes in one request.
const NAMED = 100;

export class AlertBulk {
  #failed = null;
  #drawn = "";

  /** `again` reads the alerts again. */
  constructor(selection, again) {
    this.selection = selection;
    this.again = again;
    this.count = h("p", { role: "status", class: "strong" });
    this.buttons = h("div", { class: "row" });
    this.result = h("div", { role: "alert" });
    const line = h("div", { class: "row" }, this.count, this.buttons);
    this.element = h("section", { class: "card selected", "aria-label": "Selected alerts", hidden: true }, line, this.result);
  }

  /** Render. Args: firing: all firing alerts; matching: those that match the filters. */
  draw(firing, matching) {
    this.chosen = firing.filter((alert) => this.selection.has(alert));
    const hidden = this.chosen.filter((alert) => !matching.includes(alert)).length;
    const isEvery = matching.every((alert) => this.selection.has(alert));
    const n = this.chosen.length;
    this.element.hidden = n === 0 && !this.#failed;
    const now = JSON.stringify([n, hidden, isEvery, matching.length]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.count.textContent = `${plural(n, "alert")} selected${hidden ? `, ${step(hidden)} not shown` : ""}`;
    const every = () => this.selection.set([...new Set([...this.chosen, ...matching])]);
    fill(
      this.buttons,
      n > 0 && h("button", { onclick: () => this.acknowledge(this.chosen) }, `Acknowledge ${plural(n, "alert")}`),
      n > 0 && !isEvery && h("button", { onclick: every }, `Select all ${step(matching.length)}`),
      h("button", { onclick: () => this.#clear() }, n ? "Clear" : "Close"),
    );
  }

  /** Ask for a name and a note, then acknowledge alerts; those that fail stay selected. */
  async acknowledge(alerts) {
    if (!alerts.length) return;
    const note = h("textarea", { rows: 3, maxlength: 2000, placeholder: "The node is gone; restarting" });
    const names = alerts.slice(0, NAMED).map((alert) => h("li", {}, named(alert)));
    const more = alerts.length > NAMED && h("li", {}, `and ${step(alerts.length - NAMED)} more`);
    const fields = [h("ul", { class: "names" }, names, more), author(), h("label", {}, "Note (optional)", note)];
    let failed = new Map();
    const title = `Acknowledge ${plural(alerts.length, "alert")}`;
    const act = async (form) => (failed = await acknowledged(alerts, { author: said(form), note: note.value }));
    if (!(await asked(title, fields, "Acknowledge", act))) return;
    this.#failed = failed.size ? failed : null;
    fill(this.result, this.#failed && outcome(alerts, failed));
    this.#drawn = "";
    this.selection.set(alerts.filter(({ identity }) => failed.has(identity)));
    await this.again();
  }

  #clear() {
    this.#failed = null;
    this.#drawn = "";
    fill(this.result);
    this.selection.set([]);
  }
}

/** Acknowledge alerts, as many a request as the service takes; returns why others were not, by identity. */
async function acknowledged(alerts, word) {
  const failed = new Map();
  for (let at = 0; at < alerts.length; at += MOST) {
    const identities = alerts.slice(at, at + MOST).map(({ identity }) => identity);
    try {
      const { refused } = await send("POST", "/alerts/ack", { ...word, identities });
      for (const { identity, detail } of refused) failed.set(identity, detail);
    } catch (error) {
      if (alerts.length <= MOST) throw error;
      for (const identity of identities) failed.set(identity, refusal(error));
    }
  }
  return failed;
}

function outcome(alerts, failed) {
  const rest = alerts.filter(({ identity }) => failed.has(identity));
  return [
    h("p", {}, `${step(alerts.length - rest.length)} of ${plural(alerts.length, "alert")} acknowledged. Not acknowledged:`),
    h("ul", { class: "failures" }, rest.map((alert) => h("li", {}, `${named(alert)}: ${failed.get(alert.identity)}`))),
  ];
}

const named = ({ project, run, title }) => `${project}/${run}: ${title}`;

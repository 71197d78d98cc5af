// What a person does with alerts: filters, which the address keeps, and the bar of the selected alerts.

import { dialogs, keyOf, send } from "./api.js";
import { h, refusal } from "./dom.js";
import { hasWords, keepInAddress, names, searchField, SelectionBar } from "./lists.js";
import { plural } from "./words.js";

const SEVERITIES = ["page", "warn", "info"];

export class AlertFilter {
  /** `changed` is called when a filter changes. */
  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.words = searchField(given.get("q"), "Filter alerts", "Filter by project, run, rule, cause or owner");
    const options = SEVERITIES.map((value) => h("option", { value, selected: value === given.get("severity") }, value));
    this.severity = h("select", { "aria-label": "severity" }, h("option", { value: "" }, "every severity"), options);
    this.open = h("input", { type: "checkbox", checked: given.has("open") });
    this.words.addEventListener("input", () => this.#turned());
    for (const field of [this.severity, this.open]) field.addEventListener("change", () => this.#turned());
    const open = h("label", { class: "row" }, this.open, "unacknowledged only");
    this.bar = h("div", { class: "row controls", role: "search" }, this.words, this.severity, open);
  }

  get isOn() {
    return Boolean(this.words.value.trim() || this.severity.value || this.open.checked);
  }

  /** Return what the service filters resolved alerts by, of which a page holds the newest; null if none can match. */
  get query() {
    if (this.open.checked) return null;
    return { search: this.words.value.trim() || null, severity: this.severity.value || null };
  }

  /** Return the alerts that match. */
  chosen(alerts) {
    return alerts.filter(
      (alert) =>
        (!this.severity.value || alert.severity === this.severity.value) &&
        (!this.open.checked || (!alert.ack && alert.state === "firing")) &&
        hasWords(this.words, searched(alert)),
    );
  }

  /** Remove every filter. */
  clear() {
    this.words.value = this.severity.value = "";
    this.open.checked = false;
    this.#turned();
    this.words.focus();
  }

  #turned() {
    const said = { q: this.words.value, severity: this.severity.value, open: this.open.checked ? "1" : "" };
    keepInAddress("/alerts", said);
    this.changed();
  }
}

/** What the words are searched in; the service searches the same (`store/repositories/alert_search.py`). */
function searched({ owner, rule, title, labels: { cause }, ...alert }) {
  const told = [rule, title, cause].filter(Boolean);
  const words = told.map((name) => name.replaceAll("_", " "));
  return [keyOf(alert), owner, ...told, ...words].filter(Boolean).join(" ");
}

const MOST = 500; // As many as the service takes in one request.

/** The bar of the selected alerts: acknowledges them at once and names those that were not. */
export class AlertBulk extends SelectionBar {
  /** `again` reads the alerts again. */
  constructor(selection, again) {
    super(selection, "alert");
    this.again = again;
  }

  /** Render. Args: firing: all firing alerts; matching: those that match the filters. */
  draw(firing, matching) {
    this.chosen = firing.filter((alert) => this.selection.has(alert));
    const text = `Acknowledge ${plural(this.chosen.length, "alert")}`;
    const button = this.chosen.length > 0 && h("button", { onclick: () => this.acknowledge(this.chosen) }, text);
    this.render(this.chosen, matching, { offered: (every) => [button, every] });
  }

  /** Ask for a name and a note, then acknowledge alerts; those that fail stay selected. */
  async acknowledge(alerts) {
    if (!alerts.length) return;
    const { asked, author, said } = await dialogs();
    const note = h("textarea", { rows: 3, maxlength: 2000, placeholder: "The node is gone; restarting" });
    const fields = [names(alerts.map(named)), author(), h("label", {}, "Note (optional)", note)];
    let failed = new Map();
    const title = `Acknowledge ${plural(alerts.length, "alert")}`;
    const act = async (form) => (failed = await acknowledged(alerts, { author: said(form), note: note.value }));
    if (!(await asked(title, fields, "Acknowledge", act))) return;
    const rest = alerts.filter(({ identity }) => failed.has(identity));
    const reasons = rest.map((alert) => `${named(alert)}: ${failed.get(alert.identity)}`);
    this.tell(rest.length ? this.outcome(alerts.length - rest.length, alerts.length, "acknowledged", reasons) : null);
    this.selection.set(rest.map(this.selection.keyOf));
    await this.again();
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

const named = (alert) => `${keyOf(alert)}: ${alert.title}`;

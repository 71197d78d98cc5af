// The filters of the alerts view, kept in the address.

import { h } from "./dom.js";

const SEVERITIES = ["page", "warn", "info"];

export class AlertFilter {
  /** `changed` is called when a filter changes. */
  constructor(changed) {
    const given = new URLSearchParams(location.search);
    this.changed = changed;
    this.words = h("input", {
      type: "search",
      value: given.get("q") ?? "",
      placeholder: "Filter alerts",
      "aria-label": "Filter by project, run, rule, cause or owner",
      "data-filter": true,
    });
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
    const words = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    return alerts.filter(
      (alert) =>
        (!this.severity.value || alert.severity === this.severity.value) &&
        (!this.open.checked || (!alert.ack && alert.state === "firing")) &&
        words.every((word) => searched(alert).includes(word)),
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
    const query = new URLSearchParams(Object.entries(said).filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? `/alerts?${query}` : "/alerts");
    this.changed();
  }
}

/** What the words are searched in; the service searches the same (`store/repositories/alert_search.py`). */
function searched({ project, run, owner, rule, title, labels: { cause } }) {
  const names = [rule, title, cause].filter(Boolean);
  const words = names.map((name) => name.replaceAll("_", " "));
  return [`${project}/${run}`, owner, ...names, ...words].filter(Boolean).join(" ").toLowerCase();
}

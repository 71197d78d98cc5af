// The line of a rule's alerts of several runs, which unfolds.

import { fill, h } from "./dom.js";
import { ago, plural, step } from "./words.js";

export class AlertGroup {
  #shown = "";

  constructor({ selection, turn, acknowledge }) {
    this.turn = turn;
    this.acknowledge = acknowledge;
    this.element = h("tbody", {});
    this.selection = selection;
  }

  /** Render a group. */
  show(line, isOpen) {
    this.line = line;
    const { alerts } = line;
    if (this.box) this.selection.mark(this.box, line);
    const open = alerts.filter((alert) => !alert.ack);
    const silenced = alerts.filter((alert) => alert.silenced).length;
    const oldest = Math.min(...alerts.map((alert) => alert.since_at));
    const now = JSON.stringify([alerts.length, open.length, silenced, ago(oldest), isOpen]);
    if (now === this.#shown) return;
    this.#shown = now;
    const { severity, title, rule } = alerts[0];
    const runs = plural(new Set(alerts.map(({ project, run }) => `${project}/${run}`)).size, "run");
    this.box = this.selection.box(`${title} of ${runs}`, () => this.line);
    const toggle = { class: "plain fold", "aria-expanded": String(isOpen), onclick: () => this.turn(line.key) };
    const told = [
      open.length < alerts.length && `${step(alerts.length - open.length)} acknowledged`,
      silenced > 0 && `${step(silenced)} silenced`,
    ];
    const acknowledge = h("button", { onclick: () => this.acknowledge(open) }, `Acknowledge ${step(open.length)}`);
    const cells = {
      select: this.box,
      severity: h("span", { class: `kind kind-${severity === "page" ? "act" : severity === "warn" ? "watch" : "unknown"}` }, severity),
      alert: [h("button", toggle, `${title}: ${runs}`), h("span", { class: "quiet" }, told.filter(Boolean).join(", "))],
      run: h("span", { class: "quiet" }, runs),
      since: h("span", { class: "quiet nowrap" }, `first ${ago(oldest)}`),
      actions: h("span", { class: "row actions" }, open.length > 0 && acknowledge),
    };
    const row = Object.entries(cells).map(([name, cell]) => h("td", { "data-name": name }, cell));
    fill(this.element, h("tr", { "data-severity": severity, "data-state": "firing", "data-rule": rule }, row));
  }
}

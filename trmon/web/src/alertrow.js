// One alert row: its message, its run, who acknowledged it and, on demand, its history.

import { action } from "./action.js";
import { newestLast, runPath } from "./api.js";
import { acknowledge, silence } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { ago, clock, number, step } from "./words.js";

export class AlertRow {
  #past = null;

  constructor(again) {
    this.again = again;
    this.element = h("tbody", {});
  }

  /** Render an alert. */
  show(alert) {
    this.alert = alert;
    const cells = [severity(alert), this.#what(alert), run(alert), since(alert), this.#actions(alert)];
    const names = ["severity", "alert", "run", "since", "actions"];
    const row = h(
      "tr",
      { "data-severity": alert.severity, "data-state": alert.state },
      cells.map((cell, i) => h("td", { "data-name": names[i] }, cell)),
    );
    fill(this.element, row, this.#past && h("tr", {}, h("td", { colspan: 5 }, this.#past)));
  }

  #what({ project, run: name, title, members, labels, summary, runbook, ack }) {
    const good = labels.last_good_step;
    const joined = members.map((one) => `${one.rule.replaceAll("_", " ")} since step ${step(one.step)}`);
    return [
      h("span", { class: "strong" }, title),
      members.length > 0 && good && h("span", { class: "quiet" }, ` · last good step ${step(Number(good))}`),
      h("div", {}, summary.replace(`${project}/${name}: `, "")),
      runbook && h("div", { class: "quiet" }, runbook),
      joined.length > 0 && h("div", { class: "quiet" }, `Alerts in this incident: ${joined.join(", ")}`),
      ack && h("div", { class: "quiet" }, `Acknowledged by ${ack.author} ${ago(ack.at)}${ack.note ? `: ${ack.note}` : ""}`),
    ];
  }

  #actions(alert) {
    const fires = alert.state === "firing";
    const take = async () => (await acknowledge([alert])) && this.again();
    const mute = async () =>
      (await silence(
        [
          { label: "run", value: alert.run },
          { label: "rule", value: alert.members.length ? alert.labels.cause : alert.rule },
        ],
        alert.project,
      )) && this.again();
    return h(
      "span",
      { class: "row actions" },
      fires && !alert.ack && action("Acknowledge", take),
      fires && action("Silence", mute),
      action("History", () => this.#turn(), { class: "plain", "aria-expanded": String(Boolean(this.#past)) }),
    );
  }

  async #turn() {
    this.#past = this.#past ? null : history(await newestLast("/alerts/events", { identity: this.alert.identity }));
    this.show(this.alert);
  }
}

function severity({ severity: given, state }) {
  const kind = state !== "firing" ? "unknown" : ({ page: "act", warn: "watch" }[given] ?? "unknown");
  return h("span", { class: `kind kind-${kind}` }, given);
}

function run({ project, run: name, step: at }) {
  return h(
    "a",
    { href: `${runPath(project, name)}?step=${at}` },
    h("span", { class: "project" }, `${project} / `),
    h("span", { class: "strong" }, name),
  );
}

function since({ step: at, since_at: began, state, updated_at: ended }) {
  return [
    h("div", { class: "nowrap" }, `step ${step(at)}`),
    h(
      "div",
      { class: "quiet nowrap", title: clock(began) },
      state === "resolved" ? `until ${clock(ended)}` : ago(began),
    ),
  ];
}

function history(events) {
  const items = events.map((event) =>
    h(
      "li",
      {},
      h("span", { class: "quiet" }, `${clock(event.at)} · `),
      `${event.state} at step ${step(event.step)}: ${number(event.value)} (limit ${number(event.threshold)})`,
    ),
  );
  return h("ol", { class: "events" }, items);
}

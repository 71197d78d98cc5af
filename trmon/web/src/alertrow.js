// One alert row: its message, its run, who acknowledged it and, on demand, its history.

import { action } from "./action.js";
import { newestLast, runPath } from "./api.js";
import { acknowledge, silence } from "./dialogs.js";
import { h, refill } from "./dom.js";
import { ago, clock, hour, number, plural, step } from "./words.js";

export class AlertRow {
  #past = null;
  #shown = "";

  /** `again` reads the alerts again; `find(silence)` shows a silence; alerts without a selection have no box. */
  constructor({ again, find, selection = null }) {
    this.again = again;
    this.find = find;
    this.selection = selection;
    this.element = h("tbody", {});
  }

  /** Render a line; the DOM is untouched if nothing changed. */
  show(line) {
    const [alert] = line.alerts;
    this.line = line;
    if (this.box) this.selection.mark(this.box, line);
    this.element.toggleAttribute("data-beneath", Boolean(line.isBeneath));
    const now = JSON.stringify(alert) + ago(alert.since_at) + (alert.ack ? ago(alert.ack.at) : "");
    if (now === this.#shown) return;
    this.#shown = now;
    this.#draw(alert);
  }

  #draw(alert) {
    this.alert = alert;
    this.box = this.selection?.box(`${alert.title} of ${alert.project}/${alert.run}`, () => this.line);
    const cells = [this.box ?? "", severity(alert), this.#what(alert), run(alert), since(alert), this.#actions(alert)];
    const names = ["select", "severity", "alert", "run", "since", "actions"];
    const row = h(
      "tr",
      { "data-severity": alert.severity, "data-state": alert.state },
      cells.map((cell, i) => h("td", { "data-name": names[i] }, cell)),
    );
    refill(this.element, row, this.#past && h("tr", {}, h("td", { colspan: 6 }, this.#past)));
  }

  #what({ project, run: name, owner, title, members, labels, summary, runbook, ack, silenced }) {
    const good = labels.last_good_step;
    const symptoms = members.filter(({ rule }) => rule !== labels.cause);
    const joined = members.map((one) =>
      h("li", {}, `${one.rule.replaceAll("_", " ")} since step ${step(one.step)}${one.state === "firing" ? "" : ", over"}`),
    );
    const why = silenced && `Silenced until ${hour(silenced.ends_at)} by ${silenced.author}${silenced.note ? `: ${silenced.note}` : ""}`;
    return [
      h("span", { class: "strong" }, title),
      members.length > 0 && good && h("span", { class: "quiet" }, ` · last good step ${step(Number(good))}`),
      owner && h("span", { class: "quiet" }, ` · ${owner}`),
      why && h("div", {}, h("button", { class: "plain silenced", onclick: () => this.find(silenced) }, why)),
      h(
        "details",
        { "data-name": "more" },
        h("summary", {}, symptoms.length ? plural(symptoms.length, "symptom") : "Details"),
        h("p", {}, summary.replace(`${project}/${name}: `, "")),
        runbook && h("p", { class: "quiet" }, runbook),
        joined.length > 0 && h("ul", { class: "quiet", "aria-label": "Alerts in this incident" }, joined),
      ),
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
          { label: "owner", value: alert.owner ?? "" },
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
    this.#draw(this.alert);
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

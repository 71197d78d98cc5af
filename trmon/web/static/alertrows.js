// The lines of the alerts view: an alert or incident a line, and one, which unfolds, for a rule's alerts of several runs.

import { dialogs, episode, get, keyOf, runPath } from "./api.js";
import { action, breakable, fill, h, isNew, refill } from "./dom.js";
import { ago, clock, hour, number, plural, step } from "./words.js";

export const COLUMNS = ["select", "severity", "alert", "run", "since", "actions"];
const EVENTS = 200; // The newest.

export class AlertRow {
  #past = null;

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
    this.element.toggleAttribute("data-beneath", Boolean(line.isBeneath));
    if (isNew(this.element, alert, ago(alert.since_at), alert.ack && ago(alert.ack.at))) this.#draw(alert);
    if (this.box) this.selection.mark(this.box, line.alerts);
  }

  #draw(alert) {
    this.alert = alert;
    this.box = this.selection?.box(() => this.line, `${alert.title} of ${alert.project}/${alert.run}`);
    const row = rowOf(alert, [this.box ?? "", this.#what(alert), run(alert), since(alert), this.#actions(alert)]);
    if (this.box) this.selection.mark(this.box, this.line.alerts);
    refill(this.element, row, this.#past && h("tr", {}, h("td", { colspan: COLUMNS.length }, this.#past)));
  }

  #what({ project, run: name, state, owner, title, members, labels, summary, runbook, ack, silenced }) {
    const good = labels.last_good_step;
    const symptoms = members.filter(({ rule }) => rule !== labels.cause);
    const joined = members.map((one) =>
      h("li", {}, `${one.title} since step ${step(one.step)}${one.state === "firing" ? "" : ", over"}`),
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
        state === "firing" && h("p", {}, h("a", { class: "link", href: `${runPath(project, name)}#runbook` }, "Runbook of this run")),
        joined.length > 0 && h("ul", { class: "quiet", "aria-label": "Alerts in this incident" }, joined),
      ),
      ack && h("div", { class: "quiet" }, `Acknowledged by ${ack.author} ${ago(ack.at)}${ack.note ? `: ${ack.note}` : ""}`),
    ];
  }

  #actions(alert) {
    const fires = alert.state === "firing";
    const take = async () => (await (await dialogs()).acknowledge([alert])) && this.again();
    const { project, run, owner } = alert;
    const rule = alert.members.length ? alert.labels.cause : alert.rule;
    const mute = async () => (await (await dialogs()).silence({ project, run, rule, owner })) && this.again();
    return h(
      "span",
      { class: "row actions" },
      fires && !alert.ack && action("Acknowledge", take),
      fires && action("Silence", mute),
      action("History", () => this.#turn(), { class: "plain", "aria-expanded": String(Boolean(this.#past)) }),
    );
  }

  async #turn() {
    const { identity } = this.alert;
    this.#past = this.#past ? null : history((await get("/alerts/events", { identity, limit: EVENTS })).items);
    this.#draw(this.alert);
  }
}

/** Return a line of the table: the cells of an alert, or of a group with its first one, without that of the severity. */
function rowOf({ severity, state }, [select, ...rest], given = {}) {
  const kind = (state === "firing" && { page: "act", warn: "watch" }[severity]) || "unknown";
  const cells = [select, h("span", { class: `kind kind-${kind}` }, severity), ...rest];
  const row = cells.map((cell, i) => h("td", { "data-name": COLUMNS[i] }, cell));
  return h("tr", { "data-severity": severity, "data-state": state, ...given }, row);
}

function run({ project, run: name, step: at, behind }) {
  const link = h(
    "a",
    { href: `${runPath(project, name)}?step=${at}` },
    h("span", { class: "quiet" }, breakable(project), " / "),
    h("span", { class: "strong" }, breakable(name)),
  );
  return behind ? [link, h("div", { class: "behind" }, behind.words)] : link;
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

/** Return the events of an alert, given newest first, oldest first. */
function history(events) {
  const items = events.toReversed().map((event) =>
    h(
      "li",
      {},
      h("span", { class: "quiet" }, `${clock(event.at)} · `),
      `${event.state} at step ${step(event.step)}: ${number(event.value)} (limit ${number(event.threshold)})`,
    ),
  );
  return h("ol", { class: "events" }, items);
}

export class AlertGroup {
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
    const open = alerts.filter((alert) => !alert.ack);
    const silenced = alerts.filter((alert) => alert.silenced).length;
    const oldest = Math.min(...alerts.map((alert) => alert.since_at));
    const isOther = isNew(this.element, alerts.length, open.length, silenced, ago(oldest), isOpen);
    if (isOther) this.#draw(line, { open, silenced, oldest, isOpen });
    this.selection.mark(this.box, alerts);
  }

  #draw({ key, alerts }, { open, silenced, oldest, isOpen }) {
    const [{ title, rule }] = alerts;
    const runs = plural(new Set(alerts.map(keyOf)).size, "run");
    this.box = this.selection.box(() => this.line, `${title} of ${runs}`);
    const toggle = { class: "plain fold", "aria-expanded": String(isOpen), onclick: () => this.turn(key) };
    const told = [
      open.length < alerts.length && `${step(alerts.length - open.length)} acknowledged`,
      silenced > 0 && `${step(silenced)} silenced`,
    ];
    const acknowledge = h("button", { onclick: () => this.acknowledge(open) }, `Acknowledge ${step(open.length)}`);
    const cells = [
      this.box,
      [h("button", toggle, `${title}: ${runs}`), h("span", { class: "quiet" }, told.filter(Boolean).join(", "))],
      h("span", { class: "quiet" }, runs),
      h("span", { class: "quiet nowrap" }, `first ${ago(oldest)}`),
      h("span", { class: "row actions" }, open.length > 0 && acknowledge),
    ];
    fill(this.element, rowOf(alerts[0], cells, { "data-rule": rule }));
  }
}

const TOGETHER = 3; // From this many alerts of a rule without an incident on, they are one line.
export const SEVERITIES = ["page", "warn", "info"];

/** Return the lines of alerts, the most urgent first; a line has a `key`, its `alerts` and, of a group, its `rule`. */
export function linesOf(alerts) {
  const byRule = Map.groupBy(
    alerts.filter(({ members }) => !members.length),
    ({ rule, state }) => `${state} ${rule}`,
  );
  const groups = [...byRule].filter(([, found]) => found.length >= TOGETHER);
  const grouped = new Set(groups.flatMap(([, found]) => found));
  const single = alerts.filter((alert) => !grouped.has(alert)).map((alert) => ({ key: episode(alert), alerts: [alert] }));
  const several = groups.map(([key, found]) => ({ key, rule: found[0].rule, alerts: found.sort(byUrgency) }));
  return [...single, ...several].sort((a, b) => byUrgency(a.alerts[0], b.alerts[0]));
}

/** Return the lines with those of open groups beneath their groups. */
export function unfolded(lines, open) {
  const beneath = (line) => line.alerts.map((alert) => ({ key: episode(alert), alerts: [alert], isBeneath: true }));
  return lines.flatMap((line) => (line.rule && open.has(line.key) ? [line, ...beneath(line)] : [line]));
}

function byUrgency(a, b) {
  const severity = (alert) => SEVERITIES.indexOf(alert.severity);
  return Boolean(a.ack) - Boolean(b.ack) || severity(a) - severity(b) || b.since_at - a.since_at;
}

// The alerts view: incidents and other alerts that fire, silences and past alerts, with filters and the bar of the selected
// alerts; and the runbook of a rule.

import { BudgetSection, limitTrial } from "./alarmbudget.js";
import { AlertGroup, AlertRow, COLUMNS, linesOf, SEVERITIES, unfolded } from "./alertrows.js";
import { all, dialogs, episode, follow, get, keyOf, leading, send, unanswered, upTo } from "./api.js";
import { action, h, isNew, isShortcut, moving, refill, refusal, write } from "./dom.js";
import { claim } from "./freshness.js";
import { hasWords, keepInAddress, names, place, searchField, Selection, SelectionBar, unsentLine } from "./lists.js";
import { coded, stageList } from "./runbook.js";
import { clock, now, plural, span, step } from "./words.js";

const REFRESH_MS = 2000;
const PAGE = 50;
const TYPING_MS = 250;

export async function mount(stage, { live }) {
  const view = new AlertsView(stage);
  stage.title("Alerts");
  await view.read();
  const concerns = ({ kind }) => ["alert", "ack"].includes(kind);
  follow(live, { stage, concerns, read: () => view.read(), refreshMs: REFRESH_MS, age: () => view.draw() });
  document.addEventListener("keydown", (event) => view.key(event), { signal: stage.signal });
}

class AlertsView {
  #asked = 0;
  #rows = new Map();
  #open = new Set();
  #found = null;
  #isFramed = false;
  #typed = null;

  constructor(stage) {
    this.stage = stage;
    this.limit = PAGE;
    this.most = PAGE;
    this.title = h("h1", { class: "claim" });
    this.count = h("p", { role: "status", class: "quiet" });
    this.filter = new AlertFilter(() => this.#filtered());
    this.selection = new Selection({ keyOf: episode, itemsOf: ({ alerts }) => alerts, changed: () => this.draw() });
    this.bulk = new AlertBulk(this.selection, () => this.read());
    this.firing = table("Firing", () => ((this.most += PAGE), this.draw()));
    this.silences = h("section", { class: "alerts" });
    this.budget = new BudgetSection();
    this.past = table("Resolved", () => ((this.limit += PAGE), this.read()));
    const none = "No alert matches these filters.";
    this.none = h("p", { class: "notice row" }, h("span", { class: "quiet" }, none), action("Show all alerts", () => this.filter.clear()));
    this.empty = h(
      "section",
      { class: "card empty quiet" },
      "No alert has fired yet. Built-in rules watch every run; docs/rules.md lists them and shows how to write your own.",
    );
    stage.signal.addEventListener("abort", () => clearTimeout(this.#typed));
  }

  /** Read all firing alerts, since the oldest of hundreds may be the most severe, and the newest resolved ones that match. */
  async read() {
    const turn = ++this.#asked;
    const { query } = this.filter;
    const [firing, past, silences] = await Promise.all([
      all("/alerts", { state: "firing" }),
      query ? upTo(this.limit, "/alerts", { state: "resolved", ...query }) : { items: [], hasMore: false },
      all("/silences"),
      this.budget.read(),
    ]);
    if (turn !== this.#asked) return;
    const known = [...firing, ...past.items];
    const resolved = leading(past.items, known).map((alert) => ({ ...alert, silenced: null }));
    this.#found = { firing: leading(firing, known), resolved, hasMore: past.hasMore, silences, query };
    if (!this.#isFramed) this.#frame();
    this.draw();
  }

  /** Filter what is loaded at once, and once typing pauses, all resolved alerts. */
  #filtered() {
    this.limit = PAGE;
    this.draw();
    clearTimeout(this.#typed);
    this.#typed = setTimeout(() => this.read().catch(unanswered), TYPING_MS);
  }

  #frame() {
    this.#isFramed = true;
    const head = h("header", { class: "row spread" }, this.title, h("div", { class: "row" }, action("New silence", () => this.#silence())));
    const tables = [this.firing.section, this.bulk.element, this.silences, this.budget.element, this.past.section];
    this.stage.show(head, this.filter.bar, this.count, this.none, tables, this.empty, unsentLine());
  }

  draw() {
    if (!this.#found) return;
    const { firing, resolved, hasMore, silences, query } = this.#found;
    const isAnswered = JSON.stringify(query) === JSON.stringify(this.filter.query);
    const open = firing.filter((alert) => !alert.ack).length;
    const fires = `${plural(firing.length, "alert")} ${firing.length === 1 ? "fires" : "fire"}, ${open} unacknowledged`;
    claim(this.title, firing.length ? fires : "No alert fires");
    const matching = this.filter.chosen(firing);
    const past = isAnswered ? resolved : this.filter.chosen(resolved);
    const isEmpty = !this.filter.isOn && firing.length + resolved.length === 0;
    write(this.count, this.filter.isOn ? `${step(matching.length)} of ${plural(firing.length, "firing alert")} shown` : "");
    this.filter.bar.hidden = !this.empty.toggleAttribute("hidden", !isEmpty);
    this.none.hidden = isEmpty || !isAnswered || matching.length + past.length > 0;
    this.past.section.setAttribute("aria-busy", String(!isAnswered));
    const lines = unfolded(linesOf(matching), this.#open);
    this.lines = lines.slice(0, this.most);
    this.selection.follow(this.lines, new Set(firing.map(episode)));
    this.#fill(this.firing, this.lines, lines.length - this.lines.length);
    this.#fill(this.past, past.map((alert) => ({ key: episode(alert), alerts: [alert] })), hasMore && isAnswered ? PAGE : 0);
    const kept = new Set([...lines, ...resolved.map((alert) => ({ key: episode(alert) }))].map(({ key }) => key));
    for (const key of this.#rows.keys()) if (!kept.has(key) && !this.filter.isOn) this.#rows.delete(key);
    this.bulk.draw(firing, matching);
    this.#drawSilences(silences);
  }

  #fill({ section, list, more }, lines, rest) {
    section.hidden = !lines.length && !rest;
    more.hidden = rest <= 0;
    const elements = lines.map((line) => {
      const row = this.#row(line);
      row.show(line, this.#open.has(line.key));
      return row.element;
    });
    moving(() => place(list, elements, list.tBodies));
  }

  /** Reuse the row of each line so that what is open stays open. */
  #row(line) {
    const fires = line.alerts[0].state === "firing";
    const again = () => this.read();
    const find = (one) => this.#find(one);
    const kept = this.#rows.get(line.key);
    if (kept && Boolean(kept.selection) === fires) return kept;
    const { selection } = this;
    const acknowledge = (alerts) => this.bulk.acknowledge(alerts);
    const row = line.rule
      ? new AlertGroup({ selection, turn: (key) => this.#turn(key), acknowledge })
      : new AlertRow({ again, find, selection: fires ? selection : null });
    this.#rows.set(line.key, row);
    return row;
  }

  #turn(key) {
    if (!this.#open.delete(key)) this.#open.add(key);
    this.draw();
  }

  #drawSilences(silences) {
    this.silences.hidden = !silences.length;
    if (!isNew(this.silences, silences, silences.map(left))) return;
    const rows = silences.map((one) => {
      const { id, author, note, alerts } = one;
      return h(
        "li",
        { class: "row", id: `silence-${id}`, tabindex: "-1" },
        h("code", {}, said(one)),
        h("span", { class: "quiet" }, `${left(one)}, by ${author}${note ? `: ${note}` : ""} · mutes ${plural(alerts, "alert")} now`),
        action("End", () => this.#end(one)),
      );
    });
    refill(this.silences, h("h2", {}, "Silences"), h("ul", { class: "card silences" }, rows));
  }

  #find({ id }) {
    const line = document.getElementById(`silence-${id}`);
    line?.scrollIntoView({ block: "center" });
    line?.focus({ preventScroll: true });
  }

  async #silence() {
    if (await (await dialogs()).silence({ project: "", run: "", rule: "", owner: "" })) await this.read();
  }

  async #end(one) {
    await send("DELETE", `/silences/${one.id}`);
    await this.read();
  }

  #waiting = "";

  /** Move with j and k, select with x, acknowledge with a; g a is a way to this view. */
  key(event) {
    if (!isShortcut(event)) return;
    const isSecond = this.#waiting === "g";
    this.#waiting = event.key;
    if (isSecond || !["j", "k", "x", "a"].includes(event.key)) return;
    const rows = [...this.firing.list.tBodies];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    if (event.key === "j" || event.key === "k") {
      const next = at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)));
      rows[next]?.querySelector('[type="checkbox"]').focus();
      rows[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "x" && at >= 0) {
      const line = this.lines[at];
      this.selection.choose(line, !line.alerts.every((alert) => this.selection.has(alert)), false);
    } else if (event.key === "a") {
      const chosen = this.selection.size ? this.bulk.chosen : (this.lines[at]?.alerts ?? []).filter((alert) => !alert.ack);
      this.bulk.acknowledge(chosen);
    } else return;
    event.preventDefault();
  }
}

function table(title, more) {
  const hidden = ["select", "actions"];
  const heads = COLUMNS.map((name) => h("th", { scope: "col" }, h("span", { class: hidden.includes(name) ? "sr" : "" }, name)));
  const list = h("table", { class: "list", "aria-label": title }, h("thead", {}, h("tr", {}, heads)));
  const button = h("p", {}, action("Show more", more));
  const section = h("section", { class: "alerts" }, h("h2", {}, title), h("div", { class: "card scroll" }, list), button);
  return { section, list, more: button };
}

const said = ({ matchers, project }) =>
  [project && `project=${project}`, ...matchers.map((m) => `${m.label}${m.operator}${m.value}`)]
    .filter(Boolean)
    .join(", ");

function left({ starts_at: starts, ends_at: ends }) {
  const seconds = now();
  return starts > seconds ? `from ${clock(starts)} for ${span(ends - starts)}` : `ends in ${span(ends - seconds)}`;
}

class AlertFilter {
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
class AlertBulk extends SelectionBar {
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

export async function mountRule(stage, { live, parameters: [name] }) {
  const read = () => get(`/rules/${encodeURIComponent(name)}`);
  const rule = await read();
  const trial = limitTrial(rule, stage.signal);
  stage.title(rule.title);
  stage.show(
    h("header", {}, h("h1", {}, rule.title)),
    h(
      "section",
      { class: "card stack rule" },
      h("p", {}, rule.meaning || rule.summary),
      h("h2", {}, "Runbook"),
      stageList(rule.stages, "h3"),
      h("h2", {}, "When it fires"),
      list(rule.fires_when.map(({ words, depth }) => h("li", { style: { "margin-left": `${1.2 * Math.min(depth, 3)}rem` } }, coded(words)))),
      list(rule.terms.map((term) => h("li", {}, coded(term)))),
    ),
    trial,
  );
  follow(live, { stage, concerns: () => false, read, refreshMs: REFRESH_MS });
}

const list = (items) => h("ul", {}, items);

// The alarm budget: what each rule sends per day of training, and what it would have sent with another limit.

import { get, send } from "./api.js";
import { copyButton, fill, h, refill, refusal, table } from "./dom.js";
import { number, plural, step } from "./words.js";

const AGAIN_MS = 60_000;
const COUNTS = ["alerts", "acknowledged", "silenced", "harmed", "unanswered"];
const HEADS = ["rule", "messages", "per run-day", "alerts", "acknowledged", "silenced", "followed by harm", "none of these", ""];

/** The section of the alerts view: one line, which opens to the rules. */
export class BudgetSection {
  #readAt = 0;
  #windows = [];
  #days = null;

  constructor() {
    this.line = h("span", { class: "quiet" });
    this.days = h("span", { class: "row joined", role: "group", "aria-label": "Days" });
    this.table = h("div", { class: "scroll" });
    const title = h("summary", {}, h("h2", {}, "Alarm budget"), " ", this.line);
    this.element = h("details", { class: "budgeted card panel", hidden: true, ontoggle: () => this.#draw() }, title, this.days, this.table);
  }

  /** Read it again once it is a minute old; a view without it lacks nothing else. */
  async read() {
    if (Date.now() - this.#readAt < AGAIN_MS) return;
    this.#readAt = Date.now();
    const found = await get("/alerts/budget").catch(() => null);
    if (!found) return;
    this.#windows = found.windows;
    this.#days ??= (found.windows.find(({ rules }) => rules.length) ?? found.windows[0]).days;
    this.#draw();
  }

  /** Draw the line, and once it is open, the rules. */
  #draw() {
    this.element.hidden = !this.#windows.some(({ rules }) => rules.length);
    this.line.textContent = this.#windows.map(said).join(" · ");
    if (!this.element.open) return this.table.replaceChildren();
    const turned = ({ days }) => () => ((this.#days = days), this.#draw());
    const button = (one) => h("button", { "aria-pressed": String(one.days === this.#days), onclick: turned(one) }, `${one.days} days`);
    fill(this.days, this.#windows.map(button));
    refill(this.table, this.#table(this.#windows.find(({ days }) => days === this.#days)));
  }

  #table({ rules, messages, per_run_day: rate, days }) {
    const heads = HEADS.map((name) => name || h("span", { class: "sr" }, "actions"));
    const total = (name) => rules.reduce((sum, one) => sum + one[name], 0);
    const row = (title, of, tune) =>
      h("tr", {}, h("th", { scope: "row" }, title), [step(of.messages), rateWords(of.per_run_day), ...COUNTS.map((name) => step(of[name]))].map((text) => h("td", { class: `number${text === "0" ? " quiet" : ""}` }, text)), h("td", {}, tune));
    const all = { messages, per_run_day: rate, ...Object.fromEntries(COUNTS.map((name) => [name, total(name)])) };
    const lines = rules.map((rule) => row(rule.title, rule, rule.is_tunable && h("a", { class: "link", href: `/rules/${encodeURIComponent(rule.rule)}?tune`, "aria-label": `Tune ${rule.title}` }, "Tune")));
    const body = rules.length ? [lines, row("all rules", all, null)] : h("tr", {}, h("td", { colspan: HEADS.length, class: "quiet" }, `No message in ${days} days.`));
    return table({ class: "numbers", "aria-label": `Messages of each rule over ${days} days` }, heads, body);
  }
}

const rateWords = (rate) => (rate === null ? "–" : number(rate, 2));
const said = ({ days, messages, run_days: trained, per_run_day: rate }) =>
  `${days} days: ${plural(messages, "message")} in ${number(trained, 2)} run-days${rate === null ? "" : `, ${rateWords(rate)} per run-day`}`;

/** Return the section of a rule that tries another limit over stored runs until a signal; null for a rule without limits. */
export const limitTrial = (rule, signal) => (rule.limits?.length ? new LimitTrial(rule, signal).element : null);

class LimitTrial {
  #turn = 0;

  constructor(rule, signal) {
    this.rule = rule;
    signal.addEventListener("abort", () => this.#turn++);
    const options = rule.limits.map(({ id }) => h("option", { value: id }, id));
    this.which = h("select", { onchange: () => this.#chosen() }, options);
    this.value = h("input", { type: "number", step: "any", required: true, onchange: () => this.#try() });
    this.words = h("p", {});
    this.said = h("p", { class: "quiet", role: "status" });
    this.table = h("div", { class: "scroll" });
    this.use = h("p", { class: "row" });
    const submit = (event) => (event.preventDefault(), this.#try());
    this.element = h(
      "section",
      { class: "card stack trial", "aria-label": "Another limit" },
      h("h2", {}, "Another limit"),
      h("p", { class: "quiet" }, "What would have been sent over the last 30 days, judged again from the stored rows of each run."),
      h("form", { class: "row", onsubmit: submit }, h("label", {}, "Limit ", this.which), h("label", {}, "of ", this.value), h("button", { type: "submit" }, "Try")),
      this.words,
      this.table,
      this.said,
      this.use,
    );
    if (new URLSearchParams(location.search).has("tune")) queueMicrotask(() => this.value.focus());
    this.#chosen();
  }

  #chosen() {
    this.limit = this.rule.limits.find(({ id }) => id === this.which.value);
    this.value.value = this.limit.limit;
    this.words.textContent = `Now: ${this.limit.words.replaceAll("`", "")}.`;
    this.#try();
  }

  /** Read run after run, newest first, and show the sums as they grow; a later try takes the place of this one. */
  async #try() {
    if (!this.value.reportValidity()) return;
    const turn = ++this.#turn;
    const limit = this.value.valueAsNumber;
    const { id } = this.limit;
    const isOther = limit !== this.limit.limit;
    const line = `- {name: ${this.rule.name}, limits: {${id}: ${limit}}}`;
    fill(this.use, isOther && this.rule.is_finding && ["In the rules file: ", h("code", {}, line), copyButton("Copy", () => line)]);
    this.said.textContent = "Reading the runs of the last 30 days …";
    let sum = null;
    try {
      for (let before = null; sum === null || before !== null; ) {
        const found = await send("POST", `/rules/${encodeURIComponent(this.rule.name)}/whatif`, { limit_id: id, limit, before });
        if (turn !== this.#turn) return;
        sum = added(sum, found);
        before = found.next;
        this.#draw(sum, isOther ? limit : null);
      }
    } catch (error) {
      if (turn === this.#turn) this.said.textContent = refusal(error);
    }
  }

  #draw(sum, limit) {
    const { n_runs: runs, n_left: left, n_skipped: skipped } = sum;
    const sides = [[`limit ${number(this.limit.limit)}, as now`, sum.now], limit !== null && [`limit ${number(limit)}`, sum.tried]].filter(Boolean);
    const rows = [
      ["messages of this rule", ({ of_rule: n }) => step(n)],
      ["messages of all rules", ({ messages: n }) => step(n)],
      ["pages", ({ pages: n }) => step(n)],
      sum.n_collapsed > 0 && ["collapses with a message before", ({ warned: n }) => `${step(n)} of ${step(sum.n_collapsed)}`],
    ].filter(Boolean);
    const heads = [h("span", { class: "sr" }, "count"), ...sides.map(([title]) => title)];
    const body = rows.map(([title, of]) => h("tr", {}, h("th", { scope: "row" }, title), sides.map(([, counts]) => h("td", { class: "number" }, of(counts)))));
    fill(this.table, table({ class: "numbers", "aria-label": "Messages with each limit" }, heads, body));
    const more = left ? `, newest first; ${step(left)} are still read …` : ".";
    const collapsed = sum.n_collapsed ? "" : runs === 1 ? " It did not collapse." : " None of them collapsed.";
    this.said.textContent = `Over ${plural(runs, "run")}${more}${collapsed}${skipped ? ` ${plural(skipped, "run")} of too many steps left out.` : ""}`;
  }
}

/** Return the sum of two answers, whose counts add up; what is left is that of the newer one. */
function added(sum, found) {
  if (sum === null) return found;
  const plus = (a, b) => Object.fromEntries(Object.entries(b).map(([name, n]) => [name, typeof n === "number" ? n + a[name] : n]));
  return { ...plus(sum, found), now: plus(sum.now, found.now), tried: plus(sum.tried, found.tried), n_left: found.n_left, next: found.next };
}

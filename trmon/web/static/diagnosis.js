// The diagnosis card: what is wrong, since when, the evidence and the remedy, beside the time line of the illness.

import { dialogs, get, leading } from "./api.js";
import { leadOf, storyOf } from "./chartdata.js";
import { action, copyButton, fill, h, isNew, refill } from "./dom.js";
import { fresh } from "./freshness.js";
import { answersLine, Runbook } from "./runbook.js";
import { Timeline } from "./timeline.js";
import { ago, capital, clock, now, number, percent, plural, riskWords, span, step, verdictWords } from "./words.js";

const SILENT = "2"; // Hours; the default of the silence dialog.

export class DiagnosisCard {
  element = h("section", { "aria-label": "Diagnosis" });
  announcement = h("p", { class: "sr", role: "status" });
  #kind = null;
  #closed = { step: null, at: null };
  #when = null;
  #status = null;
  #judged = h("p", { class: "judged quiet small" });

  /** `open` opens a step; `again` reads the facts anew after an action. */
  constructor(chartData, { open, again }) {
    Object.assign(this, { chartData, open, again });
    this.timeline = new Timeline(chartData, open);
    fresh.addEventListener("change", () => this.#tick(), { signal: chartData.signal });
    this.runbook = new Runbook(chartData.path);
  }

  /** Show the facts, unless they are unchanged; the time at which the run broke is shown once it is read. */
  async show(facts) {
    const story = storyOf(facts);
    this.#status = facts.judged;
    this.#tick();
    this.timeline.show(story, facts.run.last_step);
    const isKnown = !story || this.#closed.step === story.began;
    const closed = isKnown ? this.#closed : { step: story.began, at: undefined };
    this.#closed = closed;
    this.#update(facts, story);
    if (isKnown) return;
    closed.at = await closingTime(this.chartData, story.began);
    // In place: one may be using the buttons beside it.
    if (closed === this.#closed) fill(this.#when, closingWords(closed.at));
  }

  /** Render the age of the beginning anew. */
  age() {
    if (this.#when) fill(this.#when, closingWords(this.#closed.at));
  }

  /** Write how old the verdict is, each second. */
  #tick() {
    const words = this.#status && judgedWords(this.#status);
    if (!words || words === this.#judged.textContent) return;
    this.#judged.textContent = words;
    this.#judged.classList.toggle("behind", this.#status.behind !== null);
  }

  #update(facts, story) {
    this.runbook.show(facts);
    if (!isNew(this.element, facts.judged.verdict, facts.diagnosis, facts.alerts)) return;
    this.#announce(facts.judged.verdict);
    this.#draw(facts, story);
  }

  /** Tell screen readers that the verdict has changed, not each number in it. */
  #announce(verdict) {
    if (this.#kind !== null && this.#kind !== verdict.kind) this.announcement.textContent = verdictWords(verdict).join("");
    this.#kind = verdict.kind;
  }

  #draw(facts, story) {
    const { diagnosis } = facts;
    const lead = leadOf(diagnosis);
    this.#when = h("span", {}, closingWords(this.#closed.at));
    const words = [
      [headline(facts.judged.verdict), this.#judged],
      diagnosis?.circumstances.map((one) => h("p", {}, h("span", { class: "strong" }, `${one.summary}. `), one.fix)),
      riskLine(facts),
      lead && finding(lead, !facts.judged.verdict.why.includes(lead.headline)),
      story && h("p", {}, storyLine(story, { open: this.open, when: this.#when })),
      diagnosis && [toDo(diagnosis), beside(diagnosis)],
      answersLine(diagnosis?.answers),
      also(facts),
      actions(facts, this.again),
    ];
    refill(
      this.element,
      h(
        "div",
        { class: "card diagnosis", "data-kind": facts.judged.verdict.kind, "data-since": facts.judged.verdict.since_step },
        h("div", { class: "stack" }, words),
        story && h("div", { class: "stack" }, this.timeline.element),
        this.runbook.element,
      ),
    );
  }
}

function headline(verdict) {
  const [kind, why] = verdictWords(verdict);
  return h("p", { class: "headline claim" }, h("span", { class: `kind kind-${verdict.kind}` }, kind), h("span", {}, why));
}

/** Return how far the verdict goes, and last, where it moves nothing, how old it is. */
export function judgedWords({ behind, judged_at: at, judged_step: judged, step: newest }) {
  if (behind) return capital(behind.words);
  if (judged === null) return "";
  const of = newest >= judged ? ` of ${step(newest)}` : ""; // A new attempt may have begun.
  return `Judged to step ${step(judged)}${of}${at ? `, ${span(Math.max(now() - at, 1))} ago` : ""}`;
}

const OUTSIDE = "outside the healthy range"; // The verdict then names the signals.

/** What is outside its healthy range, and notes. */
function beside({ word, outside, notes }) {
  const ranges = word === OUTSIDE ? [] : outside.map((one) => `${one.words} ${number(one.value)} (healthy ${one.range})`);
  const lines = [ranges.length && `Outside the healthy range: ${ranges.join(", ")}`, ...notes];
  return lines.filter(Boolean).map((line) => h("p", { class: "quiet" }, `${capital(line)}.`));
}

/** A finding in words, with its evidence, and with its title and steps unless the verdict says them. */
const finding = ({ title, headline: steps, meaning, evidence }, isNamed = true) => [
  h("p", {}, isNamed && h("span", { class: "strong" }, `${capital(steps)}. `), meaning),
  h("ul", { class: "evidence", "aria-label": `Evidence of ${title}` }, evidence.map((item) => h("li", {}, item.words))),
];

/** The other findings, the alerts of rules beside them, findings that are over, and what is not measured. */
function also({ diagnosis, alerts }) {
  const { findings = [], over = [], unmeasured = [], circumstances = [] } = diagnosis ?? {};
  const lead = leadOf(diagnosis);
  const others = findings.filter((one) => one !== lead);
  const told = new Set(["incident", ...findings.map((one) => one.finding), ...circumstances.map((one) => one.rule)]);
  const rules = alerts.filter((alert) => alert.state === "firing" && !told.has(alert.rule));
  return [
    folded("also", `Also found: ${[...others, ...rules].map((one) => one.title).join(", ")}`, [
      ...others.map((one) => h("li", {}, finding(one))),
      ...rules.map((alert) => h("li", {}, `${capital(alert.title)} since step ${step(alert.step)}`)),
    ]),
    folded("over", plural(over.length, "finding that is over", "findings that are over"), over.map((one) => h("li", {}, capital(one.headline)))),
    folded(
      "unmeasured",
      `Not measured: ${plural(unmeasured.length, "check")}`,
      unmeasured.map(({ what, how }) => h("li", {}, `${capital(what)}: `, h("span", { class: "quiet" }, how))),
    ),
  ];
}

const folded = (name, words, items) =>
  items.length > 0 && h("details", { "data-name": name }, h("summary", { class: "quiet" }, words), h("ul", {}, items));

/** The remedy of the finding that leads; without one, what to do about the incident that a rule opened. */
function toDo({ remedy, incident }) {
  const first = remedy?.first ?? (incident?.state === "firing" && incident.fix);
  const checkpoint = remedy?.checkpoint && h("p", {}, remedy.checkpoint);
  return first && [h("p", {}, h("span", { class: "strong" }, "What to do: "), first), checkpoint, remedy && options(remedy)];
}

/** The options of the run's own framework, to paste where their values are known, and what to do if it persists. */
function options(given) {
  const text = given.to_paste.join("\n");
  const byHand = byName(given.options_in_words, "Options to set by hand");
  const copy = copyButton("Copy", () => text, { "aria-label": "Copy the options" });
  const later = byName({ ...given.then_options, ...given.then_options_in_words }, "Options to set if it persists");
  return [
    (text || byHand) &&
      h(
        "div",
        { class: "snippet" },
        h("div", { class: "row spread" }, h("span", { class: "quiet small" }, `Options of ${given.release}`), text && copy),
        text && h("pre", { class: "config" }, text),
        byHand,
      ),
    given.not_known && h("p", { class: "quiet small" }, given.not_known),
    given.then && h("details", { "data-name": "then" }, h("summary", { class: "quiet" }, "If it persists"), h("p", {}, given.then), later),
  ];
}

/** Options, each with its value or what it should be in words; null without any. */
function byName(options, label) {
  const items = Object.entries(options).map(([option, words]) => h("li", {}, h("code", {}, option), `: ${words || "set"}`));
  return items.length ? h("ul", { class: "small", "aria-label": label }, items) : null;
}

function actions({ alerts, run }, again) {
  const firing = leading(alerts.filter((alert) => alert.state === "firing"));
  const open = firing.filter((alert) => !alert.ack);
  const taken = [...new Set(firing.filter((alert) => alert.ack).map((alert) => alert.ack.author))];
  const mute = async () => (await (await dialogs()).silence({ project: run.project, run: run.run, rule: "" })) && again();
  const take = async () => (await (await dialogs()).acknowledge(open)) && again();
  const buttons = [
    open.length > 0 && action(`Acknowledge ${plural(open.length, "alert")}`, take),
    firing.length > 0 && action("Silence", mute, { title: `for ${SILENT} hours or longer` }),
    copyButton("Copy link", () => location.href),
    firing.length > 0 && h("span", { class: "quiet" }, holder(taken, run)),
  ];
  return h("div", { class: "row actions" }, buttons);
}

/** Who has it: those who acknowledged, else nobody yet and whose run it is. */
function holder(taken, { owner }) {
  if (taken.length) return `acknowledged by ${taken.join(", ")}`;
  return `nobody has acknowledged it${owner ? `; owner: ${owner}` : ""}`;
}

/** Return the risk in a line while it is at a threshold, else null: "63% risk of collapse within 200 steps, ...". */
export function riskLine({ diagnosis }) {
  const risk = diagnosis?.collapse_risk;
  if (!["warn", "page"].includes(risk?.level)) return null;
  const within = `${percent(risk.probability)} risk of collapse within ${risk.horizon_steps} steps`;
  return h("p", { class: `strong risk-${risk.level}` }, within + riskWords(risk));
}

/** Return when it began and was found, with links to these steps; `when` holds the time at which its first step closed. */
export function storyLine(story, { open, when }) {
  const link = (at, words) => h("button", { class: "link strong", onclick: () => open(at) }, `${words} ${step(at)}`);
  const { began, found, beyond, lastGood } = story;
  return [
    link(began, "Began at step"),
    when,
    beforeFall(story),
    beyond !== null && beyond > began && ["; beyond the limit ", link(beyond, "at step")],
    found > began && ["; found ", link(found, "at step")],
    story.fromStart ? "; from the start, so no step was good" : "; ",
    !story.fromStart && (lastGood === null ? "the last good step is not known" : link(lastGood, "last good step")),
    ".",
  ];
}

function beforeFall({ began, rewardFell }) {
  if (rewardFell === null) return null;
  const by = rewardFell - began;
  return by > 0 ? `, ${plural(by, "step")} before the reward fell (step ${step(rewardFell)})` : ", as the reward fell";
}

/** Return the words of when a step closed: none where that is not stored, room for them until it is read. */
function closingWords(closedAt) {
  return closedAt === null ? null : [", ", closedAt === undefined ? unread() : moment(closedAt)];
}

/** Return when a step closed, or null where its batch is not stored. */
async function closingTime({ path, names: [name], attempt, hasTimes }, at) {
  if (!name || !hasTimes) return null;
  const query = { names: name, statistics: "last", from: at, to: at, attempt_id: attempt };
  const series = await get(`${path}/signals`, query).catch(() => null);
  return series?.closed_at[0] ?? null;
}

const TYPICAL_AGE_SECONDS = 600;

/** The room that a time takes in the sentence until it is read. */
const unread = () => h("span", { class: "bone inline", "aria-hidden": "true" }, h("span", {}, moment(now() - TYPICAL_AGE_SECONDS)));

const moment = (closedAt) => [h("time", { datetime: new Date(1000 * closedAt).toISOString() }, clock(closedAt)), `, ${ago(closedAt)}`];

// The diagnosis card: what is wrong, since when, the cause and the fix, beside the time line of the illness.

import { dialogs, get, leading } from "./api.js";
import { read, write } from "./chartdata.js";
import { action, copyButton, fill, h, refill } from "./dom.js";
import { signalWords } from "./panels.js";
import { Timeline } from "./timeline.js";
import { ago, capital, clock, kindWords, now, number, percent, plural, step } from "./words.js";

const SILENT = "2"; // Hours; the default of the silence dialog.

export class DiagnosisCard {
  element = h("section", { "aria-label": "Diagnosis" });
  announcement = h("p", { class: "sr", role: "status" });
  #kind = null;
  #said = null;
  #closed = { step: null, at: null };
  #when = null;

  /** `open` opens a step; `again` reads the facts anew after an action. */
  constructor(chartData, { open, again }) {
    Object.assign(this, { chartData, open, again });
    this.timeline = new Timeline(chartData, open);
  }

  /** Show the facts, unless they are unchanged; the time at which the run broke is shown once it is read. */
  async show(facts) {
    const story = storyOf(facts);
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

  end() {
    this.timeline.end();
  }

  #update(facts, story) {
    const said = JSON.stringify([facts.judged.verdict, facts.diagnosis, facts.alerts]);
    if (this.#said === said) return;
    this.#said = said;
    this.#announce(facts.judged.verdict);
    this.#draw(facts, story);
  }

  /** Tell screen readers that the verdict has changed, not each number in it. */
  #announce({ kind, why }) {
    if (this.#kind !== null && this.#kind !== kind) this.announcement.textContent = `${kindWords(kind)}: ${why}`;
    this.#kind = kind;
  }

  #draw(facts, story) {
    const { catalogue } = this.chartData;
    const seen = facts.diagnosis?.observed ?? [];
    this.#when = h("span", {}, closingWords(this.#closed.at));
    const words = [
      headline(facts.judged.verdict),
      circumstances(facts),
      riskLine(facts),
      story && storyLines(story, { open: this.open, when: this.#when }),
      story && !story.cause && h("p", { class: "quiet" }, "The newest steps no longer show it."),
      also(facts),
      toDo(facts),
      actions(facts, this.again),
    ];
    const evidence = seen.length > 0 && [
      h("summary", {}, `Evidence: ${plural(new Set(seen.flatMap(signals)).size, "signal")}`),
      evidenceTable(seen, { catalogue, open: this.open }),
    ];
    const beside = [story && this.timeline.element, evidence && h("details", { "data-name": "evidence" }, evidence)];
    refill(
      this.element,
      h(
        "div",
        { class: "card diagnosis", "data-kind": facts.judged.verdict.kind },
        h("div", { class: "stack" }, words),
        beside.some(Boolean) && h("div", { class: "stack" }, beside),
      ),
    );
  }
}

const signals = (found) => found.evidence.map((item) => item.signal);

const headline = ({ kind, why: words }) =>
  h("p", { class: "headline" }, h("span", { class: `kind kind-${kind}` }, `${kindWords(kind)}: `), h("span", {}, words));

/** Alerts on the run itself, such as two live trainers, which no signal shows. */
function circumstances({ diagnosis }) {
  const told = diagnosis?.circumstances ?? [];
  return told.map((one) => h("p", {}, h("span", { class: "strong" }, `${one.summary}. `), one.fix));
}

/** The other findings, and the firing alerts that joined the incident. */
function also({ diagnosis, judged }) {
  const observed = diagnosis?.observed ?? [];
  const others = observed.filter((one) => one.finding !== diagnosis.primary);
  const alerts = judged.incident?.state === "firing" ? judged.alerts : [];
  const lines = [
    ...others.map((one) => `${capital(one.title)} since step ${step(one.since_step)}`),
    ...alerts.map((one) => `Alert ${one.rule.replaceAll("_", " ")} since step ${step(one.step)}`),
  ];
  if (!lines.length) return null;
  const items = lines.map((line) => h("li", {}, line));
  return h("details", { "data-name": "also" }, h("summary", { class: "quiet" }, `Also seen (${lines.length})`), h("ul", {}, items));
}

function toDo({ diagnosis }) {
  if (!diagnosis) return null;
  if (diagnosis.remedy) return remedy(diagnosis);
  const fix = (diagnosis.since_step ?? null) !== null && diagnosis.incident?.fix;
  return [fix && h("p", {}, h("span", { class: "strong" }, whenToDo(diagnosis)), fix), unknown(diagnosis)];
}

/** Signals that are missing, and the argument of log_batch that would provide each. */
function unknown({ unknown: findings, shortfall }) {
  const gaps = new Map(findings.flatMap((one) => one.missing.map((gap) => [gap.provide, one.title])));
  if (!gaps.size && !shortfall.length) return null;
  const items = [...gaps].map(([provide, title]) =>
    h("li", {}, `${capital(provide)}. `, h("span", { class: "quiet" }, `Needed for: ${title}.`)),
  );
  return h(
    "details",
    { open: gaps.size < 4, "data-name": "missing" },
    h("summary", {}, `Not measured: missing inputs (${plural(gaps.size, "item")})`),
    h("ul", {}, items),
  );
}

function actions({ alerts, run }, again) {
  const firing = leading(alerts.items.filter((alert) => alert.state === "firing"));
  const open = firing.filter((alert) => !alert.ack);
  const taken = [...new Set(firing.filter((alert) => alert.ack).map((alert) => alert.ack.author))];
  const mute = async () =>
    (await (await dialogs()).silence(
      [
        { label: "run", value: run.run },
        { label: "rule", value: "" },
      ],
      run.project,
    )) && again();
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
  const driven = risk.driven_by.length ? `, driven by ${risk.driven_by.join(" and ")}` : "";
  return h("p", { class: `risk risk-${risk.level}` }, within, driven);
}

const REWARD_RULE = "reward_collapse";
const REWARD_FINDING = "R";
const TOLD = 2; // Evidence that a sentence can hold.

/** Return the facts of a standing illness, or null without one, as where a collapse is only predicted. */
export function storyOf({ diagnosis, alerts }) {
  const began = diagnosis?.since_step ?? null;
  if (began === null || isPrediction(diagnosis.incident)) return null;
  const found = diagnosis.observed.find((one) => one.finding === REWARD_FINDING)?.since_step;
  const alert = alerts.items.find((one) => one.rule === REWARD_RULE && one.step >= began);
  const isReward = diagnosis.primary === REWARD_FINDING;
  return {
    began,
    lastGood: diagnosis.last_good_step ?? null,
    rewardFell: isReward ? null : (found ?? alert?.step ?? null),
    cause: diagnosis.observed.find((one) => one.finding === diagnosis.primary) ?? null,
    meaning: diagnosis.meaning,
  };
}

/** Render when it began and what it means; `when` holds the time at which its first step closed. */
export function storyLines(story, { open, when }) {
  const link = (at, words) => h("button", { class: "link strong", onclick: () => open(at) }, `${words} ${step(at)}`);
  const good = story.lastGood !== null && ["; ", link(story.lastGood, "last good step")];
  return [
    h("p", {}, link(story.began, "Broke at step"), when, before(story), good, "."),
    story.meaning && h("p", {}, story.meaning, " ", measured(story.cause)),
  ];
}

/** Return the words of when a step closed: none where that is not stored, room for them until it is read. */
function closingWords(closedAt) {
  return closedAt === null ? null : [", ", closedAt === undefined ? unread() : moment(closedAt)];
}

/** Return when a step closed, or null where its batch is not stored. */
async function closingTime({ path, names: [name], attempt }, at) {
  if (!name) return null;
  const query = { names: name, statistics: "last", from: at, to: at, attempt_id: attempt };
  const series = await get(`${path}/signals`, query).catch(() => null);
  return series?.closed_at[0] ?? null;
}

/** The room that a time takes in the sentence until it is read. */
const unread = () => h("span", { class: "bone inline", "aria-hidden": "true" }, h("span", {}, moment(now())));

const moment = (closedAt) => [h("time", { datetime: new Date(1000 * closedAt).toISOString() }, clock(closedAt)), `, ${ago(closedAt)}`];

function before({ began, rewardFell }) {
  if (rewardFell === null) return null;
  const by = rewardFell - began;
  if (by <= 0) return ", as the reward fell";
  return `, ${step(by)} ${by === 1 ? "step" : "steps"} before the reward fell (step ${step(rewardFell)})`;
}

/** e.g. "Versions behind at the engine 16 (limit 0), agreement of token probabilities 0.65 (at least 0.95)." */
function measured(cause) {
  const items = (cause?.evidence ?? []).filter((item) => !item.rules_out).slice(0, TOLD);
  if (!items.length) return "";
  const said = items.map((item) => `${signalWords(item.signal)} ${number(item.value)} (${limitWords(item)})`);
  const text = said.join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function limitWords({ bound, threshold, away_from: centre }) {
  if (centre !== null) return `usual: ${number(centre)} ± ${number(threshold)}`;
  return `${bound === "above" ? "at most" : "at least"} ${number(threshold)}`;
}

/** Whether an incident is led by a prediction: nothing has broken yet. */
const isPrediction = (incident) => PREDICTIONS.includes(incident?.cause);

const PREDICTIONS = ["collapse_risk", "collapse_risk_high"];

/** Return the evidence of findings as a table; usual values, which only exclude other causes, have no limit. */
export function evidenceTable(found, { catalogue, open }) {
  const seen = new Set();
  const items = found.flatMap((one) => one.evidence).filter(({ signal }) => !seen.has(signal) && seen.add(signal));
  const rows = items.map((item) =>
    h(
      "tr",
      {},
      h(
        "td",
        { title: catalogue.get(item.signal)?.description ?? "" },
        signalWords(item.signal),
        h("br"),
        h("code", { class: "quiet" }, breakable(item.signal)),
      ),
      h("td", { class: "number strong" }, number(item.value)),
      h("td", { class: "number quiet" }, item.rules_out ? "usual" : limit(item)),
      h(
        "td",
        { class: "number" },
        h("button", { class: "link", onclick: () => open(item.since_step) }, step(item.since_step)),
      ),
    ),
  );
  const head = h(
    "tr",
    {},
    ["Evidence", "value", "limit", "since step"].map((text, i) => h("th", { class: i ? "number" : "" }, text)),
  );
  return h("table", { class: "evidence" }, h("thead", {}, head), h("tbody", {}, rows));
}

/** Return a name that can wrap after underscores in a narrow column. */
const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, h("wbr")]);

/** Return the limit as text. */
function limit({ bound, threshold, away_from: centre }) {
  if (centre !== null) return centre === 0 ? `±${number(threshold)}` : `${number(centre)} ± ${number(threshold)}`;
  return `${bound === "above" ? "≤" : "≥"} ${number(threshold)}`;
}

const TRAINERS = { verl: "verl", trl: "TRL" };
const KEPT = "trmon.trainer";

/** What comes before a fix; a run that has ended cannot follow it any more. */
const whenToDo = ({ has_ended: hasEnded }) => (hasEnded ? "For the next run: " : "Do this: ");

function remedy(diagnosis) {
  const { remedy: given, quadrant } = diagnosis;
  const after = h("p", { class: "quiet" }, `Correction: ${quadrant.advice}`);
  return [
    h("p", {}, h("span", { class: "strong" }, whenToDo(diagnosis)), given.fix),
    configuration(given),
    h("details", {}, h("summary", { class: "quiet" }, "If it persists"), h("p", {}, given.persists), after),
  ];
}

/** Show the options of one trainer at a time: the one in the address, or the one chosen last. */
function configuration(given) {
  const known = (key) => Object.entries(given[key]);
  const inWords = (key) => Object.entries(given[`${key}_in_words`]);
  const keys = Object.keys(TRAINERS).filter((key) => known(key).length + inWords(key).length);
  if (!keys.length) return null;
  const lines = h("pre", { class: "config" });
  const byHand = h("div", { class: "small" });
  const tabs = keys.map((key) => h("button", { role: "tab", onclick: () => choose(key) }, TRAINERS[key]));
  const show = (key) => {
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(keys[i] === key)));
    lines.hidden = copy.hidden = !known(key).length;
    fill(lines, known(key).map(([option, value]) => `${option}=${value}`).join("\n"));
    fill(byHand, inWords(key).length > 0 && unknownValues(inWords(key)));
  };
  const choose = (key) => {
    localStorage.setItem(KEPT, key);
    write({ tab: key });
    show(key);
  };
  const list = h("div", { class: "row", role: "tablist", "aria-label": "Trainer" }, tabs);
  const copy = copyButton("Copy", () => lines.textContent, { "aria-label": "Copy the configuration" });
  show([read().tab, localStorage.getItem(KEPT)].find((key) => keys.includes(key)) ?? keys[0]);
  return h("div", { class: "snippet" }, h("div", { class: "row between" }, list, copy), lines, byHand);
}

/** The options that cannot be pasted, as the configuration of the run does not tell their present value. */
function unknownValues(options) {
  const items = options.map(([option, words]) => h("li", {}, h("code", {}, option), `: ${words}`));
  return [h("p", { class: "quiet" }, "To set by hand; the run's configuration does not tell the value:"), h("ul", {}, items)];
}

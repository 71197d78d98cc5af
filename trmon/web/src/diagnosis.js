// The diagnosis card: what is wrong, since when, the cause and the fix, beside the time line of the illness.

import { action } from "./action.js";
import { copyButton } from "./copybutton.js";
import { acknowledge, silence } from "./dialogs.js";
import { fill, h, refill } from "./dom.js";
import { evidenceTable } from "./evidence.js";
import { leading } from "./incidents.js";
import { remedy, whenToDo } from "./remedy.js";
import { riskLine } from "./risk.js";
import { closingTime, closingWords, storyLines, storyOf } from "./story.js";
import { Timeline } from "./timeline.js";
import { capital, kindWords, plural, step } from "./words.js";

const SILENT = "2"; // Hours; the default of the silence dialog.

export class DiagnosisCard {
  element = h("section", { "aria-label": "Diagnosis" });
  announcement = h("p", { class: "sr", role: "status" });
  #kind = null;
  #said = null;
  #closed = { step: null, at: null };
  #when = null;

  /** `open` opens a step; `again` reads the facts anew after an action. */
  constructor(course, { open, again }) {
    Object.assign(this, { course, open, again });
    this.timeline = new Timeline(course, open);
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
    closed.at = await closingTime(this.course, story.began);
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
    const { catalogue } = this.course;
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
    (await silence(
      [
        { label: "run", value: run.run },
        { label: "rule", value: "" },
      ],
      run.project,
    )) && again();
  const take = async () => (await acknowledge(open)) && again();
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

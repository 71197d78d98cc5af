// The lines of the fleet: runs, heads of groups, runs that stalled together, and the whole fleet in one line.

import { hasEnded, keyOf, runPath } from "./api.js";
import { copyButton, fill, h, isNew, linePath, svg } from "./dom.js";
import { unsentLine } from "./lists.js";
import { ago, kindWords, number, percent, plural, riskWords, step } from "./words.js";

const NEEDS = ["none", "soon", "now"];
const KINDS = [
  ...["finished", "healthy", "training_healthy", "no_drift_found", "too_few_rows_to_judge", "unknown"],
  ...["has_learnt_nothing_yet", "outside_the_healthy_range", "ended_ill", "watch", "stalled", "crashed", "act"],
];
const urgency = ({ verdict }) => NEEDS.indexOf(verdict.need) * KINDS.length + KINDS.indexOf(verdict.kind);
const last = (line) => line?.values.findLast((value) => value !== null) ?? null;

/** The columns: `key` is what a column sorts by, null last; `isDown` where the first click puts the largest first. */
export const COLUMNS = [
  { name: "verdict", key: urgency, isDown: true },
  { name: "run", key: (run) => `${run.project}/${run.run}`, isDown: false },
  { name: "step", key: (run) => run.step, isDown: true },
  { name: "reward", key: (run) => last(run.reward), isDown: true },
  { name: "KL (k3)", key: (run) => last(run.kl), isDown: true },
  { name: "masked", key: (run) => (typeof run.mask_rate === "number" ? run.mask_rate : null), isDown: true },
  { name: "alerts", key: (run) => run.alerts.length, isDown: true },
  { name: "owner", key: (run) => run.owner, isDown: false },
  { name: "last report", key: (run) => run.last_report_at, isDown: true },
];

export class Row {
  element = h("tr", { role: "row" });
  #line = null;

  /** `names(run)` returns the texts of a run's project and name; `isShown(run)` whether it is shown beside the fleet. */
  constructor(selection, { names, isShown }) {
    Object.assign(this, { selection, names, isShown });
    this.box = selection.box(() => this.#line);
    this.select = h("td", { role: "cell", "data-name": "select" }, this.box);
  }

  /** Render a run; the DOM is untouched if nothing changed. */
  show(line) {
    const { run } = line;
    this.#line = line;
    this.selection.mark(this.box, [run]);
    this.element.toggleAttribute("data-selected", this.box.checked);
    const [names, isShown] = [this.names(run), this.isShown(run)];
    if (!isNew(this.element, run, names, isShown, ago(run.last_report_at))) return;
    this.box.setAttribute("aria-label", `Select ${run.project}/${run.run}`);
    this.element.dataset.kind = run.verdict.kind;
    this.element.dataset.need = run.verdict.need;
    fill(
      this.element,
      this.select,
      cells(run, names, isShown).map((content, i) => h("td", { role: "cell", "data-name": COLUMNS[i].name }, content)),
    );
  }
}

function cells(run, names, isShown) {
  return [
    verdict(run),
    name(run, names, isShown),
    h("span", { class: "number" }, step(run.step)),
    course(run.reward, "reward", []),
    course(run.kl, "KL", [0, run.kl?.healthy_most ?? 0]),
    h("span", { class: "number" }, percent(run.mask_rate)),
    alerts(run),
    run.owner ? h("span", { class: "owner", title: run.owner }, run.owner) : h("span", { class: "quiet" }, "–"),
    h("span", { class: "quiet" }, ago(run.last_report_at)),
  ];
}

/** Whether a run is further on than its verdict; the newest step of a run that goes on is open. */
export function isAhead(run) {
  return run.judged_step !== null && run.judged_step < run.step - (hasEnded(run) ? 0 : 1);
}

function verdict(run) {
  const { verdict } = run;
  const todo = verdict.need !== "none" && verdict.todo;
  const order = hasEnded(run) ? "" : "Do: ";
  return h(
    "div",
    { class: "oneline", title: [verdict.why, run.behind?.words, todo && `${order}${todo}`].filter(Boolean).join("\n") },
    h("span", { class: `kind kind-${verdict.kind}` }, kindWords(verdict.kind)),
    run.behind && [" ", h("span", { class: "behind" }, `(${run.behind.words})`)],
    " ",
    riskBadge(run),
    h("span", { class: "why" }, verdict.why, todo && [" ", h("span", { class: "todo" }, order && h("b", {}, order), todo)]),
  );
}

function name(run, [project, text], isShown) {
  const since = run.verdict.since_step === null ? "" : `?step=${run.verdict.since_step}`;
  const tags = run.tags.map((tag) => h("span", { class: "tag" }, tag));
  return h(
    "div",
    { class: "oneline", title: [`${run.project} / ${run.run}`, ...run.tags].join("\n") },
    h("span", { class: "quiet" }, project),
    h("span", { class: "quiet", "aria-hidden": "true" }, "/"),
    h("a", { class: "run", href: runPath(run.project, run.run) + since, "aria-current": isShown && "true" }, text),
    tags.length > 0 && h("span", { class: "tags" }, tags),
  );
}

function course(line, what, height) {
  if (last(line) === null) return h("span", { class: "quiet" }, "–");
  const now = number(last(line));
  const label = `${what} over steps ${line.first_step} to ${line.last_step}, now ${now}`;
  return h("span", { class: "course" }, sparkline(line.values, label, height), h("span", { class: "number" }, now));
}

/** The number of firing alerts, an incident being one, and who acknowledged them. */
function alerts({ alerts: open }) {
  if (!open.length) return h("span", { class: "quiet" }, "0");
  const taken = [...new Set(open.map((alert) => alert.acked_by).filter(Boolean))];
  const title = open.map((alert) => `${alert.title} (${alert.severity}) since step ${step(alert.step)}`).join("\n");
  return h(
    "span",
    { title: [title, ...taken].filter(Boolean).join("\n"), class: "oneline" },
    String(open.length),
    taken.length > 0 && h("span", { class: "quiet why" }, ` · ${taken.join(", ")}`),
  );
}

/** Return the risk as a badge of a run in the fleet, null while it is low. */
export function riskBadge({ collapse_risk: risk }) {
  if (!["warn", "page"].includes(risk?.level)) return null;
  const given = { class: `risk strong risk-${risk.level}`, title: `risk of collapse${riskWords(risk)}` };
  return h("span", given, `${percent(risk.probability)} risk`);
}

export class Head {
  constructor(turn) {
    this.element = h("tr", { role: "row", class: "head" });
    this.turn = turn;
  }

  /** Render a head; the DOM is untouched if nothing changed. */
  show({ key, head, text, members, isOpen, kind }) {
    if (!isNew(this.element, head, text, members.length, isOpen)) return;
    this.element.dataset.kind = kind;
    this.element.dataset.need = kind === "stalled" ? "now" : "none";
    const said = kind === "stalled" ? text : `${plural(members.length, "run")}: ${text}`;
    const button = h(
      "button",
      { class: "plain oneline fold", "aria-expanded": String(isOpen), title: said, onclick: () => this.turn(key) },
      h("span", { class: `kind kind-${kind}` }, head),
      " ",
      h("span", { class: "why" }, said),
    );
    fill(this.element, h("td", { role: "cell", "aria-colspan": "10" }, button));
  }
}

const TOGETHER_SECONDS = 120;
const FEWEST = 3;

const NAMES = { project: (run) => [run.project], owner: (run) => [run.owner], tag: (run) => run.tags };

/** Return lines { key, run } and { key, head, ... } for runs in order. `turned` has the keys of the heads that were
 *  clicked: groups begin open, runs that stalled together begin closed. */
export function linesOf(runs, { group, isByVerdict, turned }) {
  if (!NAMES[group]) return isByVerdict ? joined(runs, "", turned) : runs.map((run) => line(run, ""));
  return [...grouped(runs, NAMES[group])].flatMap(([name, members]) => {
    const key = `group ${name ?? ""}`;
    const isOpen = !turned.has(key);
    const head = { key, head: name ?? `no ${group}`, text: answer(members), members, isOpen, kind: "group" };
    if (!isOpen) return [head];
    return [head, ...(isByVerdict ? joined(members, key, turned) : members.map((run) => line(run, key)))];
  });
}

const line = (run, under) => ({ key: `${under} ${keyOf(run)}`, run });

/** Put runs that fell silent together, and that nobody acknowledged, under one line where the first of them stands. */
function joined(runs, under, turned) {
  const together = stalledTogether(runs);
  const shown = new Set();
  return runs.flatMap((run) => {
    const members = together.get(run);
    if (!members) return [line(run, under)];
    if (shown.has(members)) return [];
    shown.add(members);
    const key = `stalled ${under} ${members.map(keyOf).sort()[0]}`;
    const isOpen = turned.has(key);
    const since = Math.min(...members.map((member) => member.last_report_at));
    const text = `${plural(members.length, "run")} stopped reporting together, ${ago(since)}`;
    const head = { key, head: "Stalled", text, members, isOpen, kind: "stalled" };
    return isOpen ? [head, ...members.map((member) => line(member, key))] : [head];
  });
}

function stalledTogether(runs) {
  const stalled = runs.filter((run) => run.verdict.kind === "stalled" && run.verdict.need === "now" && run.last_report_at);
  stalled.sort((a, b) => a.last_report_at - b.last_report_at);
  const found = new Map();
  for (let from = 0; from < stalled.length; ) {
    const until = stalled.findIndex((run) => run.last_report_at > stalled[from].last_report_at + TOGETHER_SECONDS);
    const members = stalled.slice(from, until < 0 ? stalled.length : until);
    if (members.length >= FEWEST) {
      const known = new Set(members);
      const ordered = runs.filter((run) => known.has(run));
      for (const run of members) found.set(run, ordered);
    }
    from += members.length;
  }
  return found;
}

/** Runs by name, the group of the first run first. */
function grouped(runs, names) {
  const groups = new Map();
  for (const run of runs) {
    const given = names(run);
    for (const name of given.length ? given : [null]) {
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(run);
    }
  }
  return groups;
}

/** e.g. "1 run needs you, 2 to watch, 14 healthy": the service says under which words each run counts. */
export function answer(runs) {
  const byWords = Map.groupBy(runs.toSorted((a, b) => urgency(b) - urgency(a)), (run) => run.verdict.counts_as);
  const { length: now } = runs.filter((run) => run.verdict.need === "now");
  const others = [...byWords].filter(([, [run]]) => run.verdict.need !== "now");
  const first = now ? `${plural(now, "run")} ${now === 1 ? "needs" : "need"} you` : "No run needs you";
  return [first, ...others.map(([words, { length }]) => `${step(length)} ${words}`)].join(", ");
}

/** The same, for the tab's title. */
export function headline(runs) {
  const now = runs.filter((run) => run.verdict.need === "now").length;
  return now ? `(${now}) Fleet` : "Fleet";
}

const LINES = (url) => `import trmon_client as trmon
monitor = trmon.init(project="math", run="qwen3-8b-grpo", url="${url}")   # line 1
...
decision = monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, logprobs=pi, mask=mask)   # line 2`;

/** The text of a service without runs; the demo's command is that of how the service was installed. */
export function newService(url) {
  const { demo } = document.documentElement.dataset;
  const pasted = (text) => h("div", { class: "paste" }, h("pre", { tabindex: "0" }, text), copyButton("Copy", () => text));
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, "No runs yet"),
    h("p", {}, "Add two lines to the trainer, which needs ", h("code", {}, "pip install trmon-client"), "; the run appears after its first step."),
    pasted(LINES(url)),
    h("p", {}, "To see a run that goes wrong first:"),
    pasted(demo),
    unsentLine(),
  );
}

/** The text of a list without runs where runs were archived, or where the list of archived runs is empty. */
export function noneActive(isArchivedShown) {
  const [title, text, href, link] = isArchivedShown
    ? ["No archived run", "No run is archived.", "/", "Show the runs"]
    : ["Every run is archived", "A new run appears after its first step.", "/?archived=1", "Show archived runs"];
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, title),
    h("p", {}, text, " ", h("a", { class: "link", href }, link), "."),
  );
}

const WIDTH = 120;
const HEIGHT = 26;

/** Return a drawing of values (null where unknown), lowest at the bottom; a flat line lies in the middle.
 *  The height spans at least `least`, so that noise below the healthy limit does not look large. */
function sparkline(values, label, least) {
  const known = [...values.filter((value) => value !== null), ...least];
  const bottom = Math.min(...known);
  const range = Math.max(...known) - bottom;
  const x = (i) => (values.length < 2 ? WIDTH / 2 : (i / (values.length - 1)) * (WIDTH - 2) + 1);
  const y = (value) => (range > 0 ? HEIGHT - 2 - ((value - bottom) / range) * (HEIGHT - 4) : HEIGHT / 2);
  const given = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label };
  return svg("svg", given, svg("path", { d: linePath(values, x, y) }));
}

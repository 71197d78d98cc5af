// One run in one line: the verdict first, then progress and recent signals.

import { runPath } from "./api.js";
import { cut } from "./cut.js";
import { fill, h } from "./dom.js";
import { riskBadge } from "./risk.js";
import { hasEnded } from "./runstate.js";
import { sparkline } from "./sparkline.js";
import { ago, kindWords, number, percent, step } from "./words.js";

const HEALTHY_KL = 0.005; // The healthy limit of kl_k3 in the signal catalogue.
const NEEDS = ["none", "soon", "now"];
const KINDS = [
  ...["finished", "healthy", "no_drift_found", "training_healthy", "unknown"],
  ...["ended_ill", "watch", "stalled", "crashed", "act"],
];
const last = (line) => line?.values.findLast((value) => value !== null) ?? null;

/** The columns: `key` is what a column sorts by, null last; `isDown` where the first click puts the largest first. */
export const COLUMNS = [
  {
    name: "verdict",
    key: (run) => NEEDS.indexOf(run.verdict.need) * 10 + KINDS.indexOf(run.verdict.kind),
    isDown: true,
  },
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
  #shown = "";
  #line = null;

  constructor(selection) {
    this.selection = selection;
    this.box = h("input", { type: "checkbox" });
    this.box.addEventListener("click", (event) => selection.choose(this.#line, this.box.checked, event.shiftKey));
  }

  /** Render a run; the DOM is untouched if nothing changed. */
  show(line) {
    const { run } = line;
    this.#line = line;
    this.box.checked = this.selection.has(run);
    this.element.toggleAttribute("data-selected", this.box.checked);
    const now = JSON.stringify(run) + ago(run.last_report_at);
    if (now === this.#shown) return;
    this.#shown = now;
    this.box.setAttribute("aria-label", `Select ${run.project}/${run.run}`);
    this.element.dataset.kind = run.verdict.kind;
    this.element.dataset.need = run.verdict.need;
    fill(
      this.element,
      h("td", { role: "cell", "data-name": "select" }, this.box),
      cells(run).map((content, i) => h("td", { role: "cell", "data-name": COLUMNS[i].name }, content)),
    );
  }
}

function cells(run) {
  return [
    verdict(run),
    name(run),
    h("span", { class: "number" }, step(run.step)),
    course(run.reward, "reward", []),
    course(run.kl, "KL", [0, HEALTHY_KL]),
    h("span", { class: "number" }, percent(run.mask_rate)),
    alerts(run),
    run.owner ? h("span", { class: "cut", title: run.owner }, cut(run.owner)) : h("span", { class: "quiet" }, "–"),
    h("span", { class: "quiet" }, ago(run.last_report_at)),
  ];
}

/** Whether a run is further on than its verdict; the newest step of a run that goes on is open. */
export function isAhead(run) {
  return run.judged_step !== null && run.judged_step < run.step - (hasEnded(run) ? 0 : 1);
}

const limit = (run) => isAhead(run) && `(to step ${step(run.judged_step)})`;

function verdict(run) {
  const { verdict } = run;
  const todo = verdict.need !== "none" && verdict.todo;
  const when = run.state === "finished" ? "For the next run" : "Do";
  return h(
    "div",
    { class: "oneline", title: [verdict.why, todo && `${when}: ${todo}`].filter(Boolean).join("\n") },
    h("span", { class: `kind kind-${verdict.kind}` }, kindWords(verdict.kind)),
    limit(run) && [" ", h("span", { class: "quiet" }, limit(run))],
    " ",
    riskBadge(run),
    h("span", { class: "why" }, verdict.why, todo && [" ", h("span", { class: "todo" }, h("b", {}, `${when}: `), todo)]),
  );
}

function name(run) {
  const since = run.verdict.since_step === null ? "" : `?step=${run.verdict.since_step}`;
  const tags = run.tags.map((tag) => h("span", { class: "tag" }, tag));
  return h(
    "div",
    { class: "oneline", title: [`${run.project} / ${run.run}`, ...run.tags].join("\n") },
    h("span", { class: "project" }, run.project),
    h("span", { class: "quiet", "aria-hidden": "true" }, "/"),
    h("a", { class: "run cut", href: runPath(run.project, run.run) + since }, cut(run.run)),
    tags.length > 0 && h("span", { class: "tags" }, tags),
  );
}

function course(line, what, height) {
  if (last(line) === null) return h("span", { class: "quiet" }, "–");
  const now = number(last(line));
  const label = `${what} over steps ${line.first_step} to ${line.last_step}, now ${now}`;
  return h("span", { class: "course" }, sparkline(line.values, label, height), h("span", { class: "number" }, now));
}

/** The number of firing alerts, and who acknowledged them or the incident that they joined. */
function alerts({ alerts: open, incident }) {
  if (!open.length && incident?.state !== "firing") return h("span", { class: "quiet" }, "0");
  const authors = [incident?.state === "firing" && incident.acked_by, ...open.map((alert) => alert.acked_by)];
  const taken = [...new Set(authors.filter(Boolean))];
  const title = open.map((alert) => `${alert.rule} (${alert.severity}) since step ${alert.step}`).join("\n");
  return h(
    "span",
    { title: [title, ...taken].filter(Boolean).join("\n"), class: "oneline" },
    String(open.length),
    taken.length > 0 && h("span", { class: "quiet why" }, ` · ${taken.join(", ")}`),
  );
}

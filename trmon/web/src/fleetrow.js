// One row of the fleet: the verdict first, then progress and recent signals.

import { runPath } from "./api.js";
import { fill, h } from "./dom.js";
import { sparkline } from "./sparkline.js";
import { ago, kindWords, number, percent, step } from "./words.js";

const HEALTHY_KL = 0.005; // The healthy limit of kl_k3 in the signal catalogue.
const NEEDS = ["now", "soon", "none"];
const KINDS = [
  ...["act", "crashed", "stalled", "watch", "ended_ill"],
  ...["unknown", "training_healthy", "no_drift_found", "healthy", "finished"],
];
const last = (line) => line?.values.findLast((value) => value !== null) ?? -Infinity;

/** The columns: `key` is the sort key, ascending. */
export const COLUMNS = [
  { name: "verdict", key: (run) => NEEDS.indexOf(run.verdict.need) * 10 + KINDS.indexOf(run.verdict.kind) },
  { name: "run", key: (run) => `${run.project}/${run.run}` },
  { name: "step", key: (run) => -(run.step ?? -1) },
  { name: "reward", key: (run) => -last(run.reward) },
  { name: "KL (k3)", key: (run) => -last(run.kl) },
  { name: "masked", key: (run) => -(run.mask_rate ?? -1) },
  { name: "alerts", key: (run) => -run.alerts.length },
  { name: "owner", key: (run) => run.owner ?? "\uffff" },
  { name: "last report", key: (run) => -(run.last_report_at ?? 0) },
];

export class Row {
  element = h("tr", {});
  #shown = "";

  /** Render a run; the DOM is untouched if nothing changed. */
  show(run) {
    const now = JSON.stringify(run) + ago(run.last_report_at);
    if (now === this.#shown) return;
    this.#shown = now;
    this.element.dataset.kind = run.verdict.kind;
    fill(
      this.element,
      cells(run).map((content, i) => h("td", { "data-name": COLUMNS[i].name }, content)),
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
    run.owner ?? h("span", { class: "quiet" }, "–"),
    h("span", { class: "quiet nowrap" }, ago(run.last_report_at)),
  ];
}

function verdict({ verdict }) {
  return [
    h("span", { class: `kind kind-${verdict.kind}` }, kindWords(verdict.kind)),
    " ",
    h("span", { class: "why" }, verdict.why),
    verdict.todo && verdict.need !== "none" && h("div", { class: "todo", title: verdict.todo }, verdict.todo),
  ];
}

function name(run) {
  const since = run.verdict.since_step === null ? "" : `?step=${run.verdict.since_step}`;
  const link = h("a", { class: "run", href: runPath(run.project, run.run) + since }, run.run);
  const tags = run.tags.map((tag) => h("span", { class: "tag" }, tag));
  return [
    h("span", { class: "project" }, `${run.project} / `),
    link,
    tags.length > 0 && h("div", { class: "tags" }, tags),
  ];
}

function course(line, what, height) {
  if (!line || !line.values.some((value) => value !== null)) return h("span", { class: "quiet" }, "–");
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
    { title, class: "nowrap" },
    String(open.length),
    taken.length > 0 && h("span", { class: "quiet" }, ` · ${taken.join(", ")}`),
  );
}

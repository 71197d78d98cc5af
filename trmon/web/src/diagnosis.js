// The diagnosis card: what is wrong, since when, the cause and the fix.

import { action } from "./action.js";
import { acknowledge, silence } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { evidenceTable, sentence } from "./evidence.js";
import { leading } from "./incidents.js";
import { remedy } from "./remedy.js";
import { capital, kindWords, plural, step } from "./words.js";

const SILENT = "2"; // Hours; the default of the silence dialog.

/** Render the card, unless its content is unchanged. */
export function diagnosisCard(where, facts, { catalogue, open, again }) {
  const said = JSON.stringify([facts.judged.verdict, facts.diagnosis, facts.alerts]);
  if (where.dataset.said === said) return;
  where.dataset.said = said;
  const seen = facts.diagnosis?.observed ?? [];
  const words = [
    headline(facts.judged.verdict),
    circumstances(facts),
    why(facts.diagnosis, { catalogue, open }),
    also(facts),
    toDo(facts),
    actions(facts, again),
  ];
  const evidence = seen.length > 0 && evidenceTable(seen, { catalogue, open });
  const opened = where.querySelector("details")?.open;
  fill(
    where,
    h(
      "div",
      { class: "card diagnosis", "data-kind": facts.judged.verdict.kind },
      h("div", { class: "stack" }, words),
      evidence,
    ),
  );
  if (opened !== undefined && where.querySelector("details")) where.querySelector("details").open = opened;
}

const headline = ({ kind, why: words }) =>
  h("p", { class: "headline" }, h("span", { class: `kind kind-${kind}` }, `${kindWords(kind)}: `), h("span", {}, words));

/** Alerts on the run itself, such as two live trainers, which no signal shows. */
function circumstances({ diagnosis }) {
  const told = diagnosis?.circumstances ?? [];
  return told.map((one) => h("p", {}, h("span", { class: "strong" }, `${one.summary}. `), one.fix));
}

/** The first step, which stays that of the incident, the last good step, and the evidence of the cause. */
function why(diagnosis, { catalogue, open }) {
  if (!diagnosis || (diagnosis.since_step ?? null) === null) return null;
  const { since_step: began, last_good_step: good, observed } = diagnosis;
  const link = (at, words) => h("button", { class: "link strong", onclick: () => open(at) }, `${words} ${step(at)}`);
  const cause = observed.find((one) => one.finding === diagnosis.primary);
  return h(
    "p",
    {},
    link(began, "Since step"),
    (good ?? null) !== null && [", ", link(good, "last good step")],
    cause ? [": ", sentence(cause, catalogue)] : ". The newest steps no longer show it.",
  );
}

/** The other findings, and the firing alerts that joined the incident. */
function also({ diagnosis, judged }) {
  const observed = diagnosis?.observed ?? [];
  const others = observed.filter((one) => one.finding !== diagnosis.primary);
  const found = others.map((one) => `${one.title} since step ${step(one.since_step)}`);
  const alerts = (judged.alerts ?? []).map((one) => `${one.rule.replaceAll("_", " ")} since step ${step(one.step)}`);
  return [
    found.length > 0 && h("p", { class: "quiet" }, `Also seen: ${found.join(", ")}.`),
    judged.incident?.state === "firing" &&
      alerts.length > 0 &&
      h("p", { class: "quiet" }, `Alerts in this incident: ${alerts.join(", ")}.`),
  ];
}

function toDo({ diagnosis }) {
  if (!diagnosis) return null;
  if (diagnosis.remedy) return remedy(diagnosis);
  const fix = (diagnosis.since_step ?? null) !== null && diagnosis.incident?.fix;
  return [fix && h("p", {}, h("span", { class: "strong" }, "Do this: "), fix), unknown(diagnosis)];
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
    { open: gaps.size < 4 },
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
    h("button", { onclick: copy }, "Copy link"),
    taken.length > 0 && h("span", { class: "quiet" }, `acknowledged by ${taken.join(", ")}`),
  ];
  return h("div", { class: "row actions" }, buttons);
}

async function copy(event) {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    // Browsers deny clipboard access to pages served over plain HTTP.
    prompt("The link", location.href);
  }
}

// The header of a run: its name and its progress.

import { action } from "./action.js";
import { file, runPath } from "./api.js";
import { compareAddress } from "./compare.js";
import { h, refill } from "./dom.js";
import { download } from "./download.js";
import { ago, clock, plural, span, step } from "./words.js";

export function runHead(head, { run, judged, attempts }, attempt) {
  const now = attempts.find(({ id }) => id === attempt) ?? attempts.at(-1);
  const pills = [attempts.length > 1 && `attempt ${now.ordinal}`, run.mode, run.state].filter(Boolean);
  const seconds = judged.expected_step_seconds;
  const facts = [
    run.project,
    run.last_step === null ? "no step yet" : `step ${step(run.last_step)}`,
    seconds && `${span(seconds)} a step`,
    now && plural(now.world_size, "rank"),
    run.owner && `owner ${run.owner}`,
    run.last_report_at && `last report ${ago(run.last_report_at)}`,
    run.tags.length > 0 && `tags ${run.tags.join(", ")}`,
  ];
  refill(
    head,
    h(
      "div",
      { class: "row" },
      h("h1", {}, run.run),
      pills.map((text) => h("span", { class: "pill" }, text)),
      attempts.length > 1 && chooser(attempts, now),
      h("a", { class: "button", href: compareAddress([run]), title: "with a sound run of this project" }, "Compare"),
      action("Share report", () => share(run), { title: "one HTML file: verdict, course, episodes; no configuration" }),
    ),
    h("p", { class: "quiet", title: `first report ${clock(run.created_at)}` }, facts.filter(Boolean).join(" · ")),
    ending(run),
    run.warnings.map(({ text }) => h("p", { class: "misuse" }, text)),
    config(run.config),
  );
}

function chooser(attempts, now) {
  const options = attempts.map((one) =>
    h("option", { value: one.id, selected: one.id === now.id }, `attempt ${one.ordinal}, ${clock(one.started_at)}`),
  );
  const go = (event) => location.assign(`${location.pathname}?attempt=${event.target.value}`);
  return h("select", { "aria-label": "Attempt", onchange: go }, options);
}

function ending({ end, end_phrase }) {
  if (!end_phrase) return null;
  const frames = end?.traceback;
  return [
    h("p", { class: "ending" }, end ? `${end_phrase}, ${ago(end.at)}` : end_phrase),
    frames && h("details", {}, h("summary", { class: "quiet" }, "innermost frames"), h("pre", { class: "config" }, frames)),
  ];
}

function config(given) {
  const rows = Object.entries(given);
  if (!rows.length) return null;
  const text = rows.map(([name, value]) => `${name} = ${JSON.stringify(value)}`).join("\n");
  return h(
    "details",
    {},
    h("summary", { class: "quiet" }, `configuration, ${plural(rows.length, "entry", "entries")}`),
    h("pre", { class: "config" }, text),
  );
}

async function share({ project, run }) {
  download(await file(`${runPath(project, run)}/report.html`), `${project}-${run}.html`);
}

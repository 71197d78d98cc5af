// The answer to "does any run need me?": the fleet in one line, and the first steps if there are no runs.

import { h } from "./dom.js";
import { plural, step } from "./words.js";

/** e.g. "1 run needs you, 2 to watch, 14 healthy". */
export function answer(runs) {
  const count = (test) => runs.filter(test).length;
  const now = count((run) => run.verdict.need === "now");
  const taken = count(
    (run) => run.verdict.need === "none" && ["act", "watch", "crashed", "stalled"].includes(run.verdict.kind),
  );
  const of = (kind) => count((run) => run.verdict.kind === kind);
  const parts = [
    now ? `${plural(now, "run")} ${now === 1 ? "needs" : "need"} you` : "No run needs you",
    part(
      count((run) => run.verdict.need === "soon"),
      "to watch",
    ),
    part(taken, "acknowledged"),
    part(
      count((run) => run.verdict.need === "none" && run.verdict.kind === "ended_ill"),
      "ended ill",
    ),
    part(of("healthy"), "healthy"),
    part(of("no_drift_found"), "no drift found"),
    part(of("training_healthy"), "training healthy"),
    part(of("unknown"), "unknown"),
    part(of("finished"), "finished"),
  ];
  return parts.filter(Boolean).join(", ");
}

/** The same, for the tab's title. */
export function headline(runs) {
  const now = runs.filter((run) => run.verdict.need === "now").length;
  return now ? `(${now}) Fleet` : "Fleet";
}

const part = (n, words) => (n ? `${step(n)} ${words}` : null);

const LINES = (url) => `import trmon_client as trmon
monitor = trmon.init(project="math", run="qwen3-8b-grpo", url="${url}")   # line 1
...
decision = monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, logprobs=pi, mask=mask)   # line 2`;

/** The text of a service without runs. */
export function newService(url) {
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, "No runs yet"),
    h("p", {}, "Add two lines to the trainer; the run appears after its first step."),
    h("pre", {}, LINES(url)),
    h(
      "p",
      { class: "quiet" },
      "Install it with pip install trmon-client. To see a run that goes wrong first: ",
      h("code", {}, "make demo ARGS=--keep"),
      ".",
    ),
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

// Who needs me: the fleet in one line; and what to do when there is no fleet yet.

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
    part(taken, "taken up"),
    part(of("healthy"), "healthy"),
    part(of("unknown"), "unknown"),
    part(of("finished"), "finished"),
  ];
  return parts.filter(Boolean).join(", ");
}

/** The same for a tab's title. */
export function headline(runs) {
  const now = runs.filter((run) => run.verdict.need === "now").length;
  return now ? `(${now}) Fleet` : "Fleet";
}

const part = (n, words) => (n ? `${step(n)} ${words}` : null);

const LINES = (url) => `import trmon_client as trmon
monitor = trmon.init(project="math", run="qwen3-8b-grpo", url="${url}")   # line 1
...
decision = monitor.log_batch(step=step, rollout_logprobs=mu, old_logprobs=old, logprobs=pi, mask=mask)   # line 2`;

/** What a service without runs says. */
export function newService(url) {
  return h(
    "section",
    { class: "card empty stack" },
    h("h1", {}, "No run reports here yet"),
    h("p", {}, "Add two lines to the trainer; the run appears with its first step."),
    h("pre", {}, LINES(url)),
    h(
      "p",
      { class: "quiet" },
      "pip install trmon-client brings it. To see what an ill run looks like first: ",
      h("code", {}, "make demo ARGS=--keep"),
      ".",
    ),
  );
}

// What the controllers of bounds propose: the policy, its evidence in words, and the way to put it in force.

import { send } from "./api.js";
import { asked } from "./dialogs.js";
import { h } from "./dom.js";
import { capital, number, percent, plural } from "./words.js";

const SOURCES = {
  recommended: "from the target share of rejected sequences",
  bound_budget: "from the error bound and the reward gained so far",
};

/** Return the proposals of an adaptation, each with its `source` in words, and `isAutomatic` if the worker applies it. */
export function proposalsOf(adaptation) {
  return Object.entries(SOURCES)
    .map(([name, source]) => ({ ...adaptation[name], source, isAutomatic: adaptation.mode === "apply" && name === "recommended" }))
    .filter(({ policy }) => policy);
}

/** Return what a proposal rests on, in sentences. */
export function evidenceOf({ n_sequences: n, mask_rate_before: before, mask_rate_after: after, moves, basis }) {
  const limited = moves.filter(({ limit }) => limit).map((one) => `${one.statistic} without limits: ${number(one.wanted)}; kept by the ${one.limit}`);
  const measured = Object.entries(basis).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value)}`);
  return [
    `Would reject ${percent(after)} instead of ${percent(before)} of the newest ${plural(n, "sequence")}.`,
    ...[limited, measured].filter((words) => words.length).map((words) => `${capital(words.join(", "))}.`),
  ];
}

/** Ask, then put a proposal in force in place of the policy `current`; resolves to true once it is. */
export function enforce(proposal, changes, { current, path }) {
  const words = [h("ul", {}, changes.map((text) => h("li", {}, text))), evidenceOf(proposal).map((text) => h("p", {}, text))];
  return asked(`Put ${proposal.policy.name} in force`, words, "Put in force", () =>
    send("PUT", `${path}/policy`, {
      policy: proposal.policy,
      pinned: current.pinned,
      reason: `proposed bounds, put in force on the page: ${proposal.reason}`.slice(0, 1000),
      replaces: current.hash,
    }),
  );
}

// The versions of a run's policy: what is proposed, then when, by whom, why, what changed, and the way back.

import { action } from "./action.js";
import { send } from "./api.js";
import { asked } from "./dialogs.js";
import { h, refill } from "./dom.js";
import { enforce, evidenceOf, proposalsOf } from "./proposals.js";
import { clock, number, plural } from "./words.js";

/** Show the versions, given oldest first, under what is proposed; `again` reads the run anew after a change. */
export function policyHistory(element, { policies, adaptation }, { path, again }) {
  const proposals = proposalsOf(adaptation);
  const said = JSON.stringify([proposals, policies.map(({ hash, created_at: at }) => [hash, at])]);
  if (element.dataset.said === said) return;
  element.dataset.said = said;
  const items = policies.map((version, i) => entry(version, policies[i - 1], { isCurrent: i === policies.length - 1, path, again }));
  const proposed = proposals.map((one) => proposal(one, { current: policies.at(-1), path, again }));
  const words = [plural(policies.length, "version"), proposals.length > 0 && plural(proposals.length, "proposal")];
  const summary = h("summary", {}, `History: ${words.filter(Boolean).join(", ")}`);
  const list = h("ol", { class: "versions" }, proposed, items.reverse());
  refill(element, h("details", { "data-name": "policyhistory" }, summary, list));
}

function proposal(given, { current, path, again }) {
  const changes = proposedChanges(given.policy, current);
  const put = async () => (await enforce(given, changes, { current, path })) && again();
  return h(
    "li",
    { class: "proposal" },
    h("p", {}, h("span", { class: "strong" }, given.policy.name), " · adaptation", h("span", { class: "pill" }, "proposed")),
    h("p", { class: "quiet small" }, `Computed ${given.source}.`),
    h("ul", { class: "small" }, changes.map((text) => h("li", {}, text))),
    evidenceOf(given).map((text) => h("p", { class: "small" }, text)),
    given.isAutomatic
      ? h("p", { class: "quiet small" }, "The worker puts it in force by itself.")
      : h("p", {}, action("Put in force", put)),
  );
}

function entry(version, before, { isCurrent, path, again }) {
  const { name, author, reason, created_at: at, hash, pinned } = version;
  const back = () =>
    asked(`Roll back to ${name}`, [h("p", {}, `It becomes the newest version; ${differences(version, before).join("; ") || "it was the first"}.`)], "Roll back", () =>
      send("POST", `${path}/policy/rollback`, { hash }),
    ).then((isDone) => isDone && again());
  return h(
    "li",
    {},
    h("p", {}, h("span", { class: "strong" }, name), ` · ${author}${pinned ? " · pinned" : ""}`, isCurrent && h("span", { class: "pill" }, "in force")),
    h("p", { class: "quiet small" }, clock(at), reason && `: ${reason}`),
    before && h("ul", { class: "small" }, differences(version, before).map((text) => h("li", {}, text))),
    !isCurrent && h("p", {}, action("Roll back to this", back)),
  );
}

/** Return what a policy would change of a version, in words; the shadows stay. */
export const proposedChanges = (policy, current) => differences({ ...current, name: policy.name, policy }, current);

/** Return what changed from one version to the next, in words. */
function differences(version, before) {
  if (!before) return [];
  const [old, now] = [before, version].map(({ policy }) => new Map(policy.criteria.map((one) => [named(one), one])));
  const all = [...new Set([...old.keys(), ...now.keys()])];
  const changes = all.flatMap((name) => criterion(name, old.get(name), now.get(name)));
  const isSame = (key) => JSON.stringify(before.policy[key] ?? []) === JSON.stringify(version.policy[key] ?? []);
  const shadows = [before, version].map(({ shadows }) => shadows.map(({ name }) => name).join(", ") || "none");
  return [
    ...(before.name === version.name ? [] : [`${before.name} → ${version.name}`]),
    ...changes,
    ...(isSame("tokens") ? [] : ["token rules changed"]),
    ...(isSame("turns") ? [] : ["turn criteria changed"]),
    ...(shadows[0] === shadows[1] ? [] : [`shadows: ${shadows[0]} → ${shadows[1]}`]),
  ];
}

const named = ({ statistic, pair, where }) => `${statistic}, ${pair} pair${where ? `, ${where}` : ""}`;

function criterion(name, old, now) {
  if (!old) return [`${name}: added`];
  if (!now) return [`${name}: removed`];
  return ["lower", "upper"]
    .filter((side) => (old[side] ?? null) !== (now[side] ?? null))
    .map((side) => `${side} bound of ${name}: ${bound(old[side])} → ${bound(now[side])}`);
}

const bound = (value) => (value === null || value === undefined ? "none" : number(value));

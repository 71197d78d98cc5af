// The versions of a run's policy: when, by whom, why, what changed, and the way back.

import { action } from "./action.js";
import { send } from "./api.js";
import { asked } from "./dialogs.js";
import { h, refill } from "./dom.js";
import { clock, number, plural } from "./words.js";

/** Show the versions, given oldest first; `again` reads the run anew after a rollback. */
export function policyHistory(element, policies, { path, again }) {
  const said = JSON.stringify(policies.map(({ hash, created_at: at }) => [hash, at]));
  if (element.dataset.said === said) return;
  element.dataset.said = said;
  const items = policies.map((version, i) => entry(version, policies[i - 1], { isCurrent: i === policies.length - 1, path, again }));
  const summary = h("summary", {}, `History: ${plural(policies.length, "version")}`);
  refill(element, h("details", { "data-name": "policyhistory" }, summary, h("ol", { class: "versions" }, items.reverse())));
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

/** Return what changed from one version to the next, in words. */
export function differences(version, before) {
  if (!before) return [];
  const [old, now] = [before, version].map(({ policy }) => new Map(policy.criteria.map((one) => [named(one), one])));
  const all = [...new Set([...old.keys(), ...now.keys()])];
  const changes = all.flatMap((name) => criterion(name, old.get(name), now.get(name)));
  const shadows = [before, version].map(({ shadows }) => shadows.map(({ name }) => name).join(", ") || "none");
  return [
    ...(before.name === version.name ? [] : [`${before.name} → ${version.name}`]),
    ...changes,
    ...(JSON.stringify(before.policy.tokens ?? []) === JSON.stringify(version.policy.tokens ?? []) ? [] : ["token rules changed"]),
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

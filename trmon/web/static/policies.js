// What each policy of a run masks, what its controllers propose, and the versions with the way back.

import { get, send } from "./api.js";
import { asked } from "./dialogs.js";
import { action, fill, h, isNew, refill } from "./dom.js";
import { capital, clock, number, percent, plural, step } from "./words.js";

const NEWEST = 20;
const SHADOW = "mask_rate:";
const CEILINGS = "Its bounds are ceilings until the run's own mismatch has been measured.";
const UNCALIBRATED = ["uncalibrated", "starts_ill"];

export async function policiesCard(where, { policies, adaptation }, { chartData, again }) {
  const current = policies.at(-1);
  const names = ["mask_rate", ...current.shadows.map((shadow) => SHADOW + shadow.name)];
  const { rates, n } = await newest(names, chartData);
  const decides = UNCALIBRATED.includes(current.calibration) ? "decides, uncalibrated" : "decides";
  const bars = names.map((name, i) => bar(i ? name.slice(SHADOW.length) : current.name, i ? "shadow" : decides, rates[i]));
  const note = h("span", { class: "note" }, `mean of the last ${plural(n, "step")}`);
  const caption = h("figcaption", {}, h("h2", {}, "What each policy masks"), note);
  const words = [kept(where, adaptation, { current, path: chartData.path, again }), origin(policies, chartData)];
  fill(where, caption, h("div", { class: "bars" }, bars), words);
}

/** Render the recommendation; it is rebuilt only when it changes, so that an error beside its button stays readable. */
function kept(where, adaptation, by) {
  const said = JSON.stringify([adaptation, by.current.hash]);
  if (where.advised?.said !== said) where.advised = { said, element: advised(adaptation, by) };
  return where.advised.element;
}

/** Return the mean mask rates of the newest steps. */
async function newest(names, chartData) {
  const from = Math.max(0, Math.floor(chartData.extent[1] - (NEWEST - 1) * chartData.stride));
  const query = { names: names.join(","), from, statistics: "mean", digits: 5, attempt_id: chartData.attempt };
  const { signals, step: steps } = await get(`${chartData.path}/signals`, query);
  const rates = names.map((name) => mean(signals[name].mean.slice(-NEWEST)));
  return { rates, n: Math.min(steps.length, NEWEST) };
}

function origin(policies, chartData) {
  const { name, author, reason, calibration } = policies.at(-1);
  const since = policies.length > 1 ? `step ${step(chartData.stepOf(policies.at(-1)))}` : "the start";
  const told = h("p", { class: "quiet small" }, `${name} since ${since}, by ${author}${reason ? `: ${reason}` : ""}`);
  return calibration === "uncalibrated" ? [told, h("p", { class: "quiet small" }, CEILINGS)] : told;
}

function bar(name, role, rate) {
  const filled = h("span", { class: "filled", style: { width: `${100 * (rate ?? 0)}%` } });
  return h(
    "div",
    { class: "bar" },
    h("span", { class: "name" }, name, h("span", { class: "quiet" }, ` · ${role}`)),
    h("span", { class: "track" }, filled),
    h("span", { class: "number" }, percent(rate)),
  );
}

/** Render the controller's recommendation, with a button to apply it, or the reason why it keeps the bounds. */
function advised({ mode, recommended }, by) {
  if (mode === "off" || !recommended || (mode === "apply" && recommended.policy)) return null;
  if (!recommended.policy) return h("p", { class: "small" }, `Bounds unchanged: ${recommended.reason}`);
  const [effect] = evidenceOf(recommended);
  const moves = recommended.moves.map((one) => `${one.statistic} ${one.side} ${number(one.before)} → ${number(one.after)}`);
  return h(
    "div",
    { class: "stack small" },
    h("p", {}, `Adaptation proposes ${moves.join(", ")}. ${effect}`),
    h("p", {}, action("Apply these bounds", () => enforce(recommended, by))),
  );
}

function mean(values) {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** Show the versions, given oldest first, under what is proposed; `again` reads the run anew after a change. */
export function policyHistory(element, { policies, adaptation }, { path, again }) {
  const proposals = proposalsOf(adaptation);
  if (!isNew(element, proposals, policies.map(({ hash, created_at: at }) => [hash, at]))) return;
  const items = policies.map((version, i) => entry(version, policies[i - 1], { isCurrent: i === policies.length - 1, path, again }));
  const proposed = proposals.map((one) => proposal(one, { current: policies.at(-1), path, again }));
  const words = [plural(policies.length, "version"), proposals.length > 0 && plural(proposals.length, "proposal")];
  const summary = h("summary", {}, `History: ${words.filter(Boolean).join(", ")}`);
  const list = h("ol", { class: "versions" }, proposed, items.reverse());
  refill(element, h("details", { "data-name": "policyhistory" }, summary, list));
}

function proposal(given, by) {
  return h(
    "li",
    { class: "proposal" },
    h("p", {}, h("span", { class: "strong" }, given.policy.name), " · adaptation", h("span", { class: "pill" }, "proposed")),
    h("p", { class: "quiet small" }, `Computed ${given.source}.`),
    changesOf(given.policy, by.current),
    evidenceOf(given).map((text) => h("p", { class: "small" }, text)),
    given.isAutomatic
      ? h("p", { class: "quiet small" }, "The worker puts it in force by itself.")
      : h("p", {}, action("Put in force", () => enforce(given, by))),
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

/** Return what a policy would change of a version, as a list; the shadows stay. */
const changesOf = (policy, current, given = { class: "small" }) =>
  h("ul", given, differences({ ...current, name: policy.name, policy }, current).map((text) => h("li", {}, text)));

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

const SOURCES = {
  recommended: "from the target share of rejected sequences",
  bound_budget: "from the error bound and the reward gained so far",
};

/** Return the proposals of an adaptation, each with its `source` in words, and `isAutomatic` if the worker applies it. */
function proposalsOf(adaptation) {
  return Object.entries(SOURCES)
    .map(([name, source]) => ({ ...adaptation[name], source, isAutomatic: adaptation.mode === "apply" && name === "recommended" }))
    .filter(({ policy }) => policy);
}

/** Return what a proposal rests on, in sentences. */
function evidenceOf({ n_sequences: n, mask_rate_before: before, mask_rate_after: after, moves, basis }) {
  const limited = moves.filter(({ limit }) => limit).map((one) => `${one.statistic} without limits: ${number(one.wanted)}; kept by the ${one.limit}`);
  const measured = Object.entries(basis).map(([name, value]) => `${name.replaceAll("_", " ")} ${number(value)}`);
  return [
    `Would reject ${percent(after)} instead of ${percent(before)} of the newest ${plural(n, "sequence")}.`,
    ...[limited, measured].filter((words) => words.length).map((words) => `${capital(words.join(", "))}.`),
  ];
}

/** Ask, then put a proposal in force in place of the policy `current`. */
async function enforce(proposal, { current, path, again }) {
  const words = [changesOf(proposal.policy, current, {}), evidenceOf(proposal).map((text) => h("p", {}, text))];
  const isDone = await asked(`Put ${proposal.policy.name} in force`, words, "Put in force", () =>
    send("PUT", `${path}/policy`, {
      policy: proposal.policy,
      pinned: current.pinned,
      reason: `proposed bounds, put in force on the page: ${proposal.reason}`.slice(0, 1000),
      replaces: current.hash,
    }),
  );
  if (isDone) await again();
}

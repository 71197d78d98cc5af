// What each policy would mask: the active policy and its shadows, and the controller's recommended bounds.

import { action } from "./action.js";
import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { proposedChanges } from "./policyhistory.js";
import { enforce, evidenceOf } from "./proposals.js";
import { number, percent, plural, step } from "./words.js";

const NEWEST = 20;
const SHADOW = "mask_rate:";
const CEILINGS = "Its bounds are ceilings until the run's own mismatch has been measured.";
const UNCALIBRATED = ["uncalibrated", "starts_ill"];

export async function policiesCard(where, { policies, adaptation }, { course, path, again }) {
  const current = policies.at(-1);
  const names = ["mask_rate", ...current.shadows.map((shadow) => SHADOW + shadow.name)];
  const { rates, n } = await newest(names, { course, path });
  const decides = UNCALIBRATED.includes(current.calibration) ? "decides, uncalibrated" : "decides";
  const bars = names.map((name, i) =>
    bar(i ? name.slice(SHADOW.length) : current.name, i ? "shadow" : decides, rates[i]),
  );
  const note = h("span", { class: "note" }, `mean of the last ${plural(n, "step")}`);
  const caption = h("figcaption", {}, h("h2", {}, "What each policy masks"), note);
  const words = [kept(where, adaptation, { current, path, again }), origin(policies, course)];
  fill(where, caption, h("div", { class: "bars" }, bars), words);
}

/** Render the recommendation; it is rebuilt only when it changes, so that an error beside its button stays readable. */
function kept(where, adaptation, by) {
  const said = JSON.stringify([adaptation, by.current.hash]);
  if (where.advised?.said !== said) where.advised = { said, element: advised(adaptation, by) };
  return where.advised.element;
}

/** Return the mean mask rates of the newest steps. */
async function newest(names, { course, path }) {
  const from = Math.max(0, Math.floor(course.extent[1] - (NEWEST - 1) * course.stride));
  const query = { names: names.join(","), from, statistics: "mean", digits: 5, attempt_id: course.attempt };
  const { signals, step: steps } = await get(`${path}/signals`, query);
  const rates = names.map((name) => mean(signals[name].mean.slice(-NEWEST)));
  return { rates, n: Math.min(steps.length, NEWEST) };
}

function origin(policies, course) {
  const { name, author, reason, calibration } = policies.at(-1);
  const since = policies.length > 1 ? `step ${step(course.stepOf(policies.at(-1)))}` : "the start";
  const told = h("p", { class: "quiet small" }, `${name} since ${since}, by ${author}${reason ? `: ${reason}` : ""}`);
  return calibration === "uncalibrated" ? [told, h("p", { class: "quiet small" }, CEILINGS)] : told;
}

function bar(name, role, rate) {
  const filled = h("span", { class: "filled" });
  filled.style.width = `${100 * (rate ?? 0)}%`;
  return h(
    "div",
    { class: "bar" },
    h("span", { class: "name" }, name, h("span", { class: "quiet" }, ` · ${role}`)),
    h("span", { class: "track" }, filled),
    h("span", { class: "number" }, percent(rate)),
  );
}

/** Render the controller's recommendation, with a button to apply it, or the reason why it keeps the bounds. */
function advised({ mode, recommended }, { current, path, again }) {
  if (mode === "off" || !recommended || (mode === "apply" && recommended.policy)) return null;
  if (!recommended.policy) return h("p", { class: "small" }, `Bounds unchanged: ${recommended.reason}`);
  const changes = proposedChanges(recommended.policy, current);
  const put = async () => (await enforce(recommended, changes, { current, path })) && again();
  const [effect] = evidenceOf(recommended);
  const moves = recommended.moves.map((one) => `${one.statistic} ${one.side} ${number(one.before)} → ${number(one.after)}`);
  return h(
    "div",
    { class: "stack small" },
    h("p", {}, `Adaptation proposes ${moves.join(", ")}. ${effect}`),
    h("p", {}, action("Apply these bounds", put)),
  );
}

function mean(values) {
  const known = values.filter((value) => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// The story of an illness in one sentence: when it began, how long before the reward fell, and what it means.

import { get } from "./api.js";
import { now } from "./clock.js";
import { h } from "./dom.js";
import { isPrediction } from "./risk.js";
import { signalWords } from "./signalwords.js";
import { ago, clock, number, step } from "./words.js";

const REWARD_RULE = "reward_collapse";
const REWARD_FINDING = "R";
const TOLD = 2; // Evidence that a sentence can hold.

/** Return the facts of a standing illness, or null without one, as where a collapse is only predicted. */
export function storyOf({ diagnosis, alerts }) {
  const began = diagnosis?.since_step ?? null;
  if (began === null || isPrediction(diagnosis.incident)) return null;
  const found = diagnosis.observed.find((one) => one.finding === REWARD_FINDING)?.since_step;
  const alert = alerts.items.find((one) => one.rule === REWARD_RULE && one.step >= began);
  const isReward = diagnosis.primary === REWARD_FINDING;
  return {
    began,
    lastGood: diagnosis.last_good_step ?? null,
    rewardFell: isReward ? null : (found ?? alert?.step ?? null),
    cause: diagnosis.observed.find((one) => one.finding === diagnosis.primary) ?? null,
    meaning: diagnosis.meaning,
  };
}

/** Render when it began and what it means; `when` holds the time at which its first step closed. */
export function storyLines(story, { open, when }) {
  const link = (at, words) => h("button", { class: "link strong", onclick: () => open(at) }, `${words} ${step(at)}`);
  const good = story.lastGood !== null && ["; ", link(story.lastGood, "last good step")];
  return [
    h("p", {}, link(story.began, "Broke at step"), when, before(story), good, "."),
    story.meaning && h("p", {}, story.meaning, " ", measured(story.cause)),
  ];
}

/** Return the words of when a step closed: none where that is not stored, room for them until it is read. */
export function closingWords(closedAt) {
  return closedAt === null ? null : [", ", closedAt === undefined ? unread() : moment(closedAt)];
}

/** Return when a step closed, or null where its batch is not stored. */
export async function closingTime({ path, names: [name], attempt }, at) {
  if (!name) return null;
  const query = { names: name, statistics: "last", from: at, to: at, attempt_id: attempt };
  const series = await get(`${path}/signals`, query).catch(() => null);
  return series?.closed_at[0] ?? null;
}

/** The room that a time takes in the sentence until it is read. */
const unread = () => h("span", { class: "bone inline", "aria-hidden": "true" }, h("span", {}, moment(now())));

const moment = (closedAt) => [h("time", { datetime: new Date(1000 * closedAt).toISOString() }, clock(closedAt)), `, ${ago(closedAt)}`];

function before({ began, rewardFell }) {
  if (rewardFell === null) return null;
  const by = rewardFell - began;
  if (by <= 0) return ", as the reward fell";
  return `, ${step(by)} ${by === 1 ? "step" : "steps"} before the reward fell (step ${step(rewardFell)})`;
}

/** e.g. "Versions behind at the engine 16 (limit 0), agreement of token probabilities 0.65 (at least 0.95)." */
function measured(cause) {
  const items = (cause?.evidence ?? []).filter((item) => !item.rules_out).slice(0, TOLD);
  if (!items.length) return "";
  const said = items.map((item) => `${signalWords(item.signal)} ${number(item.value)} (${limitWords(item)})`);
  const text = said.join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function limitWords({ bound, threshold, away_from: centre }) {
  if (centre !== null) return `usual: ${number(centre)} ± ${number(threshold)}`;
  return `${bound === "above" ? "at most" : "at least"} ${number(threshold)}`;
}

// What a diagnosis means for the charts: the finding that leads, the steps in which it began, and the limits that it crossed.

const PREDICTION = "collapse_risk"; // Nothing has broken yet.
const REWARD = ["reward_collapse", "reward_decline"];
const SMOOTHED = ["mean", "average"]; // Of a signal, in its units.

/** Return the finding that leads; null where none that counts stands. */
export const leadOf = (diagnosis) => (diagnosis?.word === "finding" ? diagnosis.findings[0] : null);

/** Return the facts of a standing illness, or null without one, as where a collapse is only predicted. */
export function storyOf({ diagnosis }) {
  const lead = leadOf(diagnosis);
  const began = diagnosis?.since_step ?? null;
  if (!lead || began === null || lead.finding === PREDICTION) return null;
  const fell = diagnosis.findings.find((one) => REWARD.includes(one.finding));
  return {
    began,
    found: lead.found_step,
    beyond: lead.beyond_step,
    interval: [diagnosis.last_good_step ?? began, lead.beyond_step ?? lead.found_step],
    fromStart: lead.from_start,
    lastGood: diagnosis.last_good_step,
    rewardFell: fell && fell !== lead ? fell.since_step : null,
    lead,
  };
}

/** Return the limits of findings that stand on the scale of one of the named signals, each `at` a value with its `kind`. */
export function limitsOf(diagnosis, names) {
  const limits = (diagnosis?.findings ?? []).flatMap(({ severity, evidence }) =>
    evidence
      .filter((item) => names.includes(item.signal) && isOnScale(item))
      .map(({ limit: at }) => ({ at, kind: severity === "page" ? "act" : "watch" })),
  );
  return limits.filter(({ at }, i) => limits.findIndex((other) => other.at === at) === i);
}

/** Whether a comparison is of the signal itself, rather than of its growth or distance. */
function isOnScale({ measure, value, now }) {
  const transform = measure.split(".")[1];
  return transform ? SMOOTHED.includes(transform) : value === now;
}

// What a diagnosis means for the charts: the finding that leads, the steps in which the run broke, the signals that are
// evidence, and the limits that they crossed.

const REWARD = ["reward_collapse", "reward_decline"];

/** Return the finding that leads; null where none that counts stands. */
export const leadOf = (diagnosis) => (diagnosis?.word === "finding" ? diagnosis.findings[0] : null);

/** Return the facts of a standing illness, or null without one, as where a collapse is only predicted. */
export function storyOf({ diagnosis }) {
  const lead = leadOf(diagnosis);
  if (!diagnosis?.interval) return null;
  const fell = diagnosis.findings.find((one) => REWARD.includes(one.finding));
  return {
    began: diagnosis.since_step,
    found: lead.found_step,
    beyond: lead.beyond_step,
    interval: diagnosis.interval,
    fromStart: lead.from_start,
    lastGood: diagnosis.last_good_step,
    checkpoint: diagnosis.remedy?.checkpoint_step ?? null,
    rewardFell: fell && fell !== lead ? fell.since_step : null,
    lead,
  };
}

const kindOf = (severity) => (severity === "page" ? "act" : "watch");

/** Return the signals to draw first, by name, each with the `title` and the `kind` of what it is evidence of: those of the
 *  finding that leads, the chart of each other one, and without a finding what is outside its healthy range. */
export function evidenceOf(diagnosis, leadKind) {
  const lead = leadOf(diagnosis);
  const found = new Map();
  const add = (name, title, kind) => found.has(name) || found.set(name, { title, kind });
  if (!lead) for (const { signal } of diagnosis?.outside ?? []) add(signal, "outside its healthy range", "watch");
  else for (const name of [lead.chart, ...lead.evidence.map(({ signal }) => signal)]) add(name, lead.title, leadKind);
  const counted = lead ? diagnosis.findings.filter(({ severity }) => severity !== "info") : [];
  for (const { chart, title, severity } of counted) add(chart, title, kindOf(severity));
  return found;
}

/** Return the limits of findings that stand on the scale of one of the named signals, each `at` a value with its `kind`. */
export function limitsOf(diagnosis, names) {
  const limits = (diagnosis?.findings ?? []).flatMap(({ severity, evidence }) =>
    evidence
      .filter((item) => names.includes(item.signal) && item.is_on_scale)
      .map(({ limit: at }) => ({ at, kind: kindOf(severity) })),
  );
  return limits.filter(({ at }, i) => limits.findIndex((other) => other.at === at) === i);
}

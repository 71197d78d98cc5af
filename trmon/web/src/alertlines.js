// The lines of the alerts view: an alert or incident a line, and one for a rule's alerts of several runs.

import { episode } from "./incidents.js";

const TOGETHER = 3; // From this many alerts of a rule without an incident on, they are one line.
const SEVERITIES = ["page", "warn", "info"];

/** Return the lines of alerts, the most urgent first; a line has a `key`, its `alerts` and, of a group, its `rule`. */
export function linesOf(alerts) {
  const byRule = Map.groupBy(
    alerts.filter(({ members }) => !members.length),
    ({ rule, state }) => `${state} ${rule}`,
  );
  const groups = [...byRule].filter(([, found]) => found.length >= TOGETHER);
  const grouped = new Set(groups.flatMap(([, found]) => found));
  const single = alerts.filter((alert) => !grouped.has(alert)).map((alert) => ({ key: episode(alert), alerts: [alert] }));
  const several = groups.map(([key, found]) => ({ key, rule: found[0].rule, alerts: found.sort(byUrgency) }));
  return [...single, ...several].sort((a, b) => byUrgency(a.alerts[0], b.alerts[0]));
}

/** Return the lines with those of open groups beneath their groups. */
export function unfolded(lines, open) {
  const beneath = (line) => line.alerts.map((alert) => ({ key: episode(alert), alerts: [alert], isBeneath: true }));
  return lines.flatMap((line) => (line.rule && open.has(line.key) ? [line, ...beneath(line)] : [line]));
}

export function byUrgency(a, b) {
  const severity = (alert) => SEVERITIES.indexOf(alert.severity);
  return Boolean(a.ack) - Boolean(b.ack) || severity(a) - severity(b) || b.since_at - a.since_at;
}

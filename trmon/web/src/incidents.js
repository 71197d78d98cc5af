// Incidents and the alerts that joined them: one row, one acknowledgement.

export const episode = ({ identity, attempt_id, step }) => `${identity}@${attempt_id}:${step}`;

/** Return the alerts that stand for themselves: incidents, and alerts that joined none of them. */
export function leading(alerts, incidents = alerts) {
  const joined = new Set(incidents.flatMap(({ members }) => members.map(episode)));
  return alerts.filter((alert) => !joined.has(episode(alert)));
}

// Bounds that are being tried, in the address: try=STATISTIC,PAIR[,WHERE] with lower= and upper=; an absent bound is none.

import { write } from "./permalink.js";

const SIDES = ["lower", "upper"];

/** Return the draft in the address as { criterion, bounds }; null without one, or with one that cannot be read. */
export function draftInAddress() {
  const given = new URLSearchParams(location.search);
  const [statistic, pair, where = null] = (given.get("try") ?? "").split(",");
  const bounds = Object.fromEntries(SIDES.map((side) => [side, given.has(side) ? Number(given.get(side) || NaN) : null]));
  const isRead = statistic && pair && Object.values(bounds).every((value) => value === null || Number.isFinite(value));
  return isRead ? { criterion: { statistic, pair, where }, bounds } : null;
}

/** Keep bounds of a criterion in the address of the run at `path`; null removes them. */
export function keepDraft(draft, path) {
  if (!draft) return write({ try: null, lower: null, upper: null }, path);
  const { criterion, bounds } = draft;
  const name = [criterion.statistic, criterion.pair, criterion.where].filter(Boolean).join(",");
  write({ try: name, ...Object.fromEntries(SIDES.map((side) => [side, bounds[side] ?? null])) }, path);
}

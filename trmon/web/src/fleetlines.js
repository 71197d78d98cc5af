// The lines of the fleet: runs under the heads of their groups, and runs that stalled together in one line.

import { answer } from "./fleetanswer.js";
import { keyOf } from "./fleetselection.js";
import { ago, plural } from "./words.js";

const TOGETHER_SECONDS = 120;
const FEWEST = 3;

const NAMES = { project: (run) => [run.project], owner: (run) => [run.owner], tag: (run) => run.tags };

/** Return lines { key, run } and { key, head, ... } for runs in order. `turned` has the keys of the heads that were
 *  clicked: groups begin open, runs that stalled together begin closed. */
export function linesOf(runs, { group, isByVerdict, turned }) {
  if (!NAMES[group]) return isByVerdict ? joined(runs, "", turned) : runs.map((run) => line(run, ""));
  return [...grouped(runs, NAMES[group])].flatMap(([name, members]) => {
    const key = `group ${name ?? ""}`;
    const isOpen = !turned.has(key);
    const head = { key, head: name ?? `no ${group}`, text: answer(members), members, isOpen, kind: "group" };
    if (!isOpen) return [head];
    return [head, ...(isByVerdict ? joined(members, key, turned) : members.map((run) => line(run, key)))];
  });
}

const line = (run, under) => ({ key: `${under} ${keyOf(run)}`, run });

/** Put runs that fell silent together, and that nobody acknowledged, under one line where the first of them stands. */
function joined(runs, under, turned) {
  const together = stalledTogether(runs);
  const shown = new Set();
  return runs.flatMap((run) => {
    const members = together.get(run);
    if (!members) return [line(run, under)];
    if (shown.has(members)) return [];
    shown.add(members);
    const key = `stalled ${under} ${members.map(keyOf).sort()[0]}`;
    const isOpen = turned.has(key);
    const since = Math.min(...members.map((member) => member.last_report_at));
    const text = `${plural(members.length, "run")} stopped reporting together, ${ago(since)}`;
    const head = { key, head: "Stalled", text, members, isOpen, kind: "stalled" };
    return isOpen ? [head, ...members.map((member) => line(member, key))] : [head];
  });
}

function stalledTogether(runs) {
  const stalled = runs.filter((run) => run.verdict.kind === "stalled" && run.verdict.need === "now" && run.last_report_at);
  stalled.sort((a, b) => a.last_report_at - b.last_report_at);
  const found = new Map();
  for (let from = 0; from < stalled.length; ) {
    const until = stalled.findIndex((run) => run.last_report_at > stalled[from].last_report_at + TOGETHER_SECONDS);
    const members = stalled.slice(from, until < 0 ? stalled.length : until);
    if (members.length >= FEWEST) {
      const known = new Set(members);
      const ordered = runs.filter((run) => known.has(run));
      for (const run of members) found.set(run, ordered);
    }
    from += members.length;
  }
  return found;
}

/** Runs by name, the group of the first run first. */
function grouped(runs, names) {
  const groups = new Map();
  for (const run of runs) {
    const given = names(run);
    for (const name of given.length ? given : [null]) {
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(run);
    }
  }
  return groups;
}

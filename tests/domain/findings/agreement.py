"""The product's judge and the independent evaluator on the same rows, row by row.

`python -m tests.domain.findings.agreement FOLDER` prints what is found in logs of real runs, and where the two differ:
FOLDER/runs has a log NAME.* a run; FOLDER/manifest.jsonl may have a line a run with `id`, `verdict` (healthy, ill or
uninformative) and `accept` (the findings that are right).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.domain.findings.independent import Evaluated, evaluate
from trmon.domain.analysis.logged_steps import LoggedStep, logged_steps
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row, Spell
from trmon.domain.findings.verdict import leader_of
from trmon.logs.source import LogSource

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
OTHER_ONSETS = {
    "cut_at_limit.constant": "the product has the first row of the newest length",
    "not_learning.floor": "the product has the first of the 50 rows",
    "stale_rollouts.no_sync": "the product has the first row that should have been synced",
    "support_shift.ratio": "the product splits the distances from 1",
}
"""Clauses whose onsets are not defined by the row's own value against the limit, and why; who leads may follow it."""
NEAR_ROWS = 2
"""How many rows the onsets may differ."""


@dataclass(frozen=True)
class Difference:
    """Where the two differ after a row: what they find, the leader, or (at a trip) the onset."""

    row: int
    of: str
    product: object
    independent: object


def differences(
    rows: Sequence[Mapping[str, float]],
    *,
    attempts: Sequence[int] = (),
    fresh: Sequence[int] = (),
    config: Mapping[str, object] = MappingProxyType({}),
    found: Evaluated | None = None,
) -> Iterator[Difference]:
    """Yield where the two differ. Args: as of `evaluate`; found: what it found, if that is known."""
    attempts = attempts or [0] * len(rows)
    found = found or evaluate(rows, attempts=attempts, fresh=fresh, config=config)
    onsets = {(spell.clause.key, spell.trip): spell.onset for spell in found.spells}
    facts = {"replay_declared": 1.0} if config.get("router_replay") else {}
    state = JudgeState()
    for i, values in enumerate(rows):
        configuration = str(sum(row <= i for row in fresh))
        state = JUDGE.fold(state, Row(place=Place(attempts[i], i), values=values, facts=facts, config=configuration))
        leader = leader_of(state, CATALOGUE)
        if i == len(rows) - 1 and config.get("ended"):
            state = JUDGE.finish(state)
        if state.standing.keys() != found.standing[i]:
            yield Difference(i, "standing", set(state.standing), set(found.standing[i]))
            continue
        of_other_onset = {spell.finding for spell in state.standing.values() if _key(spell) in OTHER_ONSETS}
        leaders = leader and leader.finding, found.leader[i]
        if leaders[0] != leaders[1] and not of_other_onset & set(leaders):
            yield Difference(i, "leader", *leaders)
        for spell in state.standing.values():
            key = _key(spell)
            onset = onsets.get((key, i)) if spell.trip == i and key not in OTHER_ONSETS else None
            if onset is not None and abs(onset - spell.onset) > NEAR_ROWS:
                yield Difference(i, f"onset of {key}", spell.onset, onset)


def _key(spell: Spell) -> str:
    return f"{spell.finding}.{spell.clause}"


Values = dict[str, float]


def rows_of(path: Path) -> tuple[list[Values], list[int]]:
    """Return the rows of a log under trmon's names, a row a step, and the attempt of each."""
    source = LogSource.of(path)
    rows: dict[tuple[int, int], Values] = {}
    for item in logged_steps(source.items(), source.survey):
        if isinstance(item, LoggedStep) and item.metrics.signals:
            rows.setdefault((item.attempt, item.step), {}).update(item.metrics.signals)
    return list(rows.values()), [attempt for attempt, _ in rows]


def main(folder: Path) -> int:
    """Print the findings of each run and the differences; return in how many runs the two differ."""
    manifest, given = {}, folder / "manifest.jsonl"
    if given.exists():
        manifest = {run["id"]: run for run in map(json.loads, given.read_text().splitlines())}
    differ = 0
    for path in sorted((folder / "runs").iterdir()):
        rows, attempts = rows_of(path)
        found = evaluate(rows, attempts=attempts, config={"ended": True})
        run = manifest.get(path.stem, {})
        standing = sorted(found.standing[-1]) if rows else []
        print(f"{path.stem} {run.get('verdict', '')} {run.get('accept') or ''} ({len(rows)} rows): {standing}")
        for spell in found.spells:
            print(f"    {spell.clause.key}: tripped {spell.trip}, onset {spell.onset}, end {spell.end}")
        others = list(differences(rows, attempts=attempts, config={"ended": True}))
        for other in others[:5]:
            print(f"  DIFFER at {other.row} in {other.of}: judge {other.product}, independent {other.independent}")
        differ += bool(others)
    print(f"the judge and the independent evaluator differ in {differ} runs")
    return differ


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)

"""Prints what is found in logs of real runs, and where the judge and the independent evaluator differ on them.

`python -m tests.domain.findings.compare FOLDER`: FOLDER/runs has a log NAME.* a run; FOLDER/manifest.jsonl may have a
line a run with `id`, `verdict` (healthy, ill or uninformative) and `accept` (the findings that are right).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.domain.findings.agreement import differences
from tests.domain.findings.independent import evaluate
from trmon.domain.analysis.logged_steps import LoggedStep, logged_steps
from trmon.logs.source import LogSource

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

"""Prints what the independent evaluator finds in logs of real runs: `python -m tests.domain.findings.compare DIR`.

DIR has a file NAME.jsonl a run, a row a line under the names of its framework; DIR/../manifest.jsonl may have a line a
run with `id`, `verdict` (healthy, ill or uninformative) and `accept` (the findings that are right).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.domain.findings.independent import INFO, Evaluated, evaluate
from tests.domain.findings.measures import Moment, Run
from trmon.domain.framework_names.translation import recognise, translate

NOT_YET_IN_TABLES = {
    "val/num_eos_tokens": "eos_tokens",
    "objective/kl": "reference_kl_sum",
    "policy/approxkl_avg": "staleness_kl_k1",
    "critic/score/max": "reward_max",
    "critic/advantages/max": "advantage_max",
    "critic/advantages/min": "advantage_min",
}
"""Names that the tables of frameworks leave out and findings read."""
PAGES = ("not_a_number", "corrupt_logprobs", "reward_collapse")
EARLY = ("not_a_number", "corrupt_logprobs")
"""In a run's first 20 rows only these are sent."""


def rows_of(path: Path) -> list[dict[str, float]]:
    """Return the rows of a log under trmon's names."""
    found = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    logged = [row["data"] if isinstance(row.get("data"), dict) else row for row in found]
    table = recognise(tuple(dict.fromkeys(name for row in logged for name in row)))
    return [dict(translate(row, table=table, mapped=NOT_YET_IN_TABLES).signals) for row in logged]


def pages(rows: Sequence[Mapping[str, float]], found: Evaluated) -> set[str]:
    """Return the findings that page, without the predictor, which is silent here."""
    run, paged = Run(rows, [0] * len(rows), {}), set()
    for i, standing in enumerate(found.standing):
        fall = Moment(run, i).fall() or 0.0
        paged |= {f for f in standing if f in EARLY or (f in PAGES and i >= 20)}
        # `reward_decline` ... at fall >= 0.7 where the predictor is silent
        paged |= {f for f in standing if f == "reward_decline" and fall >= 0.7 and i >= 20}
        # *drift growing* or `overoptimisation` with fall >= 0.5
        growing = any(
            s.clause == "drift growing" and s.trip <= i and (s.end is None or i < s.end) for s in found.spells
        )
        if fall >= 0.5 and i >= 20:
            paged |= {f for f in standing if f == "overoptimisation" or (f == "moderate_drift" and growing)}
    return paged


def warned(found: Evaluated) -> set[str]:
    """Return the findings that are sent at some row: those that stand after the first 20 rows."""
    later = set().union(*found.standing[20:]) if len(found.standing) > 20 else set()
    return {f for f in later if f not in INFO}


def lines(found: Evaluated) -> Iterator[str]:
    """Yield a line a spell."""
    for s in found.spells:
        yield f"    {s.finding}/{s.clause}: tripped {s.trip}, onset {s.onset}, end {s.end}"


def main(folder: Path) -> None:
    """Print the findings of each run, then the counts against the manifest."""
    manifest, given = {}, folder.parent / "manifest.jsonl"
    if given.exists():
        manifest = {row["id"]: row for row in map(json.loads, given.read_text().splitlines())}
    ill, healthy, flat = [0, 0], [0, 0, 0, 0], [0, 0, 0, 0]
    for path in sorted(folder.glob("*.jsonl")):
        rows = rows_of(path)
        found = evaluate(rows, config={"ended": True})
        expected = manifest.get(path.stem, {})
        verdict, accept = expected.get("verdict"), expected.get("accept")
        end = {f for f in found.standing[-1] if f not in INFO}
        paged, told = pages(rows, found), warned(found)
        right = bool(set(accept or ()) & found.standing[-1])
        tail = f"accept {accept}: {'right' if right else 'WRONG'}" if verdict == "ill" else ""
        print(f"{path.stem} {verdict} ({len(rows)} rows) leader {found.leader[-1]}; {tail}")
        print(f"    standing at the end {sorted(found.standing[-1])}")
        print(f"    paged {sorted(paged)}, warned {sorted(told - paged)}")
        print("\n".join(lines(found)), flush=True)
        if verdict == "ill":
            ill = [ill[0] + right, ill[1] + 1]
        elif verdict is not None:
            count = healthy if verdict == "healthy" else flat
            for at, true in enumerate((paged, (told | end) - paged, not end and not told, True)):
                count[at] += bool(true)
    print(f"ill with an accepted finding at the end: {ill[0]} of {ill[1]}")
    for name, count in (("healthy", healthy), ("uninformative", flat)):
        print(f"{name}: {count[0]} paged, {count[1]} warned or standing, {count[2]} silent of {count[3]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

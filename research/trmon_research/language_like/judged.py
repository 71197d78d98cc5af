"""The simulated runs judged by trmon's judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trmon.domain.findings.configuration import facts_of
from trmon.domain.findings.judge import Place, Row
from trmon.domain.severity import Severity
from trmon_research.judgement.folded import FoldedRun, folded
from trmon_research.language_like.plans import Plan
from trmon_research.language_like.runs import CACHE, rows
from trmon_research.language_like.scoring import Judgement, Sent


def rows_of_lines(lines: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the lines of a run as the service judges them; a declared change starts a new baseline."""
    facts: dict[str, float] = {}
    baseline = 0
    for line in lines:
        facts = facts_of(line["config"]) if "config" in line else facts
        baseline += bool(line.get("note", {}).get("resets_baseline"))
        place = Place(line["attempt"], line["step"])
        yield Row(place=place, values=line["values"], facts=facts, config=str(baseline))


def fold_plan(plan: Plan, folder: Path = CACHE) -> FoldedRun:
    """Return a run, simulated first where its file is missing, with what the judge found."""
    return folded(rows_of_lines(rows(plan, folder)))


def judgement_of(found: FoldedRun) -> Judgement:
    """Return what the table scores of a judged run."""
    illness = found.illness
    return Judgement(
        standing=found.standing,
        leaders=found.leaders,
        sent=[
            Sent(told.row, "page" if told.severity is Severity.PAGE else "warning", told.spell.finding)
            for told in found.told
        ],
        onset=None if illness is None else illness.onset,
        last_good=found.good,
    )

"""The judge over real runs that an expert has read: who was told what, and how often each clause was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trmon.domain.analysis.logged_run import read_logged_run
from trmon.domain.findings.judge import Spell
from trmon.domain.severity import Severity
from trmon.logs.source import LogSource
from trmon_research.judgement.folded import CATALOGUE, FoldedRun, folded

ILL, HEALTHY, UNINFORMATIVE = "ill", "healthy", "uninformative"
NEAR, FAR = 3, 10
DISPUTED = "disputed"
"""Two readings of one run that do not agree; it counts nowhere."""


class Reading(msgspec.Struct, frozen=True):
    """What an expert says of a run; `accept` are the findings that are right, `from_row` the row of the onset.

    `half` is what the run was for, if the runs were split: open to correct rules on, or sealed.
    """

    id: str
    verdict: str
    accept: tuple[str, ...] = ()
    from_row: int | None = None
    half: str = ""


@dataclass(frozen=True, slots=True)
class RealRun:
    """A run, its reading, and what the judge found."""

    reading: Reading
    found: FoldedRun

    @property
    def spells(self) -> Sequence[Spell]:
        """What warned or paged at any time, told or not."""
        return self.found.spells

    @property
    def is_right(self) -> bool:
        """Whether a right finding stands at the end."""
        return not set(self.reading.accept).isdisjoint(self.found.standing[-1])

    @property
    def was_right(self) -> bool:
        """Whether a right finding stood at some time."""
        return any(spell.finding in self.reading.accept for spell in self.spells)

    @property
    def pages(self) -> bool:
        """Whether anything paged."""
        return any(spell.severity is Severity.PAGE for spell in self.spells)

    @property
    def onset_error(self) -> int | None:
        """The rows between the first right finding's onset and that of the reading; None without both."""
        onsets = [spell.onset for spell in self.spells if spell.finding in self.reading.accept]
        return abs(min(onsets) - self.reading.from_row) if onsets and self.reading.from_row is not None else None


def readings(folder: Path) -> Iterator[Reading]:
    """Yield the readings of the runs of a folder with manifest.jsonl and runs/ID.*, without disputed ones."""
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        reading = msgspec.json.decode(line, type=Reading)
        if reading.verdict != DISPUTED:
            yield reading


def real_runs(folder: Path) -> Iterator[RealRun]:
    """Yield the runs of a folder, of whatever format. Errors: InvalidInput if one is not there or cannot be read."""
    for reading in readings(folder):
        source = LogSource.of(next((folder / "runs").glob(f"{reading.id}.*"), folder / "runs" / reading.id))
        rows = read_logged_run(source.items(), source.survey, source=reading.id).rows
        yield RealRun(reading, folded(rows))


def clause_counts(runs: Sequence[RealRun]) -> Mapping[str, tuple[int, int]]:
    """Return the runs on which each clause was right, and wrong, without those on which it never was true.

    Right: an ill run of which the finding is accepted. Information counts for nothing.
    """
    right, wrong = Counter[str](), Counter[str]()
    for run in runs:
        counts = right if run.reading.verdict == ILL else wrong
        for key, finding in {(f"{spell.finding}.{spell.clause}", spell.finding) for spell in run.spells}:
            (counts if finding in run.reading.accept else wrong)[key] += 1
    return {key: (right[key], wrong[key]) for key in CATALOGUE.by_key if right[key] or wrong[key]}


def figures(runs: Sequence[RealRun]) -> Iterator[tuple[str, int, int, str]]:
    """Yield the figures: what is counted, the count, of how many, and what is wanted."""
    of = {verdict: [run for run in runs if run.reading.verdict == verdict] for verdict in (ILL, HEALTHY, UNINFORMATIVE)}
    errors = [error for run in of[ILL] if (error := run.onset_error) is not None]
    yield "ill: a right finding stands at the end", sum(run.is_right for run in of[ILL]), len(of[ILL]), "15"
    yield "ill: a right finding stood at some time", sum(run.was_right for run in of[ILL]), len(of[ILL]), ""
    yield "healthy: paged", sum(run.pages for run in of[HEALTHY]), len(of[HEALTHY]), "0"
    yield "healthy: warned or paged", sum(bool(run.spells) for run in of[HEALTHY]), len(of[HEALTHY]), "at most 1"
    yield "uninformative: silent", sum(not run.spells for run in of[UNINFORMATIVE]), len(of[UNINFORMATIVE]), "9"
    yield "uninformative: paged", sum(run.pages for run in of[UNINFORMATIVE]), len(of[UNINFORMATIVE]), "0"
    yield f"onset within {NEAR} rows", sum(error <= NEAR for error in errors), len(errors), "80%"
    yield f"onset within {FAR} rows", sum(error <= FAR for error in errors), len(errors), "95%"


def wrong_runs(runs: Sequence[RealRun]) -> Iterator[str]:
    """Yield a line for each run that was judged wrongly."""
    for run in runs:
        reading, far = run.reading, (run.onset_error or 0) > FAR
        if (run.is_right and not far) if reading.verdict == ILL else not run.spells:
            continue
        said = "; ".join(
            f"{spell.finding}.{spell.clause} in row {spell.trip}, since {spell.onset}" for spell in run.spells
        )
        since = "" if reading.from_row is None else f" from row {reading.from_row}"
        accepted = f" ({', '.join(reading.accept)})" if reading.accept else ""
        yield f"{reading.id}: {reading.verdict}{since}{accepted}: {said or 'silent'}"

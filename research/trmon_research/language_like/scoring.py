"""The table of a judge over the simulated runs: who was paged, told, for the right cause, and from which row on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trmon_research.language_like.faults import Truth
from trmon_research.language_like.plans import Plan
from trmon_research.language_like.runs import Simulated

NEAR, FAR = 3, 10
"""Rows within which the onset of 80% and of 95% of the runs must lie."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent after a row. Args: finding: what it is about."""

    row: int
    severity: Literal["page", "warning"]
    finding: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge made of a run.

    Args: standing: the findings that stand after each row, [rows]; leaders: the leading finding after each row, None
    without one, [rows]; sent: the messages in order; onset: the row at which the incident began, as said after the
    last row that has a leader; last_good: the last good row that was said then, None where there is none.
    """

    standing: list[frozenset[str]]
    leaders: list[str | None]
    sent: list[Sent]
    onset: int | None = None
    last_good: int | None = None


@dataclass(frozen=True, slots=True)
class RunScore:
    """How a run was judged; the fields of causes and onsets are of ill runs only.

    `told_row` is that of the first message from the onset on; `early` counts messages before it; `onset_error` is the
    distance in rows to the interval of the true onset, None if no right cause was found; `good_before` counts the rows
    from the last good row to the last one before the onset, None without one.
    """

    name: str
    is_ill: bool
    paged: bool
    warned: bool
    told_row: int | None = None
    early: int = 0
    first: str | None = None
    last: str | None = None
    first_is_right: bool = False
    last_is_right: bool = False
    onset_error: int | None = None
    good_after_onset: bool = False
    good_before: int | None = None


def score_run(name: str, truth: Truth | None, judgement: Judgement) -> RunScore:
    """Return the score of a run."""
    paged = any(sent.severity == "page" for sent in judgement.sent)
    warned = any(sent.severity == "warning" for sent in judgement.sent)
    if truth is None:
        stood = next((leader for leader in judgement.leaders if leader), None)
        return RunScore(name, False, paged, warned, first=stood)
    told = next((sent for sent in judgement.sent if sent.row >= truth.onset), None)
    # The leader of the row may be another finding than the one the message was sent for.
    first = None if told is None else judgement.leaders[told.row] or told.finding
    last = next((leader for leader in reversed(judgement.leaders) if leader), None)
    is_right = last in truth.accept
    found = judgement.onset
    good = judgement.last_good
    error = None if found is None or not is_right else max(truth.onset - found, found - truth.until, 0)
    return RunScore(
        name,
        True,
        paged,
        warned,
        told_row=None if told is None else told.row,
        early=sum(sent.row < truth.onset for sent in judgement.sent),
        first=first,
        last=last,
        first_is_right=first in truth.accept,
        last_is_right=is_right,
        onset_error=error,
        # A ramp's beginning is an interval: a row within it may well be called good.
        good_after_onset=good is not None and good >= max(truth.until, 1),
        good_before=None if good is None else truth.onset - 1 - good,
    )


def score(judgements: Mapping[Plan, Judgement]) -> str:
    """Return the table of section 5 of the specification, and a line for each run that was judged wrongly."""
    scores = [score_run(plan.name, Simulated.of(plan).truth, judgement) for plan, judgement in judgements.items()]
    return "\n".join([*figure_table(scores, WANTED), "", *_wrong(scores)])


WANTED = ("0", "at most 1", "at least 29", "0", "at least 26", "at least 28", "80%", "95%", "0", "few")


def figure_table(scores: Iterable[RunScore], wanted: Sequence[str]) -> list[str]:
    """Return the table of what is counted over judged runs, of how many, and what is wanted of each figure."""
    counts = figure_counts(scores)
    rows = [f"| {' | '.join(map(str, (*count, goal)))} |" for count, goal in zip(counts, wanted, strict=True)]
    return ["| figure | count | of | wanted |", "|---|---|---|---|", *rows]


def figure_counts(scores: Iterable[RunScore]) -> Sequence[tuple[str, int, int]]:
    """Return the figures of judged runs: what is counted, the count, and of how many."""
    scores = list(scores)
    healthy, ill = [s for s in scores if not s.is_ill], [s for s in scores if s.is_ill]
    errors = [s.onset_error for s in ill if s.onset_error is not None]
    before = [s.good_before for s in ill if s.good_before is not None]
    return (
        ("healthy: paged", sum(s.paged for s in healthy), len(healthy)),
        ("healthy: warned", sum(s.warned for s in healthy), len(healthy)),
        ("ill: told", sum(s.told_row is not None for s in ill), len(ill)),
        ("ill: told before the onset", sum(s.early > 0 for s in ill), len(ill)),
        ("ill: first cause right", sum(s.first_is_right for s in ill), len(ill)),
        ("ill: cause right in the end", sum(s.last_is_right for s in ill), len(ill)),
        (f"onset within {NEAR} rows", sum(error <= NEAR for error in errors), len(errors)),
        (f"onset within {FAR} rows", sum(error <= FAR for error in errors), len(errors)),
        ("last good row after the onset", sum(s.good_after_onset for s in ill), len(ill)),
        (f"last good row over {FAR} rows too early", sum(n > FAR for n in before), len(before)),
    )


def _wrong(scores: Iterable[RunScore]) -> Iterable[str]:
    for s in scores:
        if not s.is_ill and (s.paged or s.warned):
            yield f"{s.name}: {'paged' if s.paged else 'warned'}, {s.first}"
        elif s.is_ill and not (s.first_is_right and s.last_is_right and (s.onset_error or 0) <= FAR and not s.early):
            told = "not told" if s.told_row is None else f"told at row {s.told_row}"
            off = "" if s.onset_error is None else f", onset {s.onset_error} rows off"
            yield f"{s.name}: {told}, first {s.first}, in the end {s.last}{off}, {s.early} messages before the onset"

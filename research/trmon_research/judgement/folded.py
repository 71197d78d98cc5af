"""A judged run as it went: what stood after each row, what was sent, and the state at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Row, Spell
from trmon.domain.findings.verdict import explains, last_good_of, leader_of, onset_of_illness
from trmon.domain.incidents.incident import QUIET_STEPS
from trmon.domain.rules.rule import RuleSet
from trmon.domain.severity import Severity

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
FINDINGS = RuleSet((), CATALOGUE)
"""The findings alone, as rules."""


@dataclass(frozen=True, slots=True)
class Told:
    """A message after a row about a spell: the first one, or that it has become a page."""

    row: int
    severity: Severity
    spell: Spell


@dataclass(frozen=True, slots=True)
class FoldedRun:
    """A judged run: `standing` and `leaders` after each row, [rows], the messages in order, and the last illness.

    `illness` is the spell whose onset was that of the illness after the last row with a leader, `good` its last good
    row; None without any.
    """

    state: JudgeState
    standing: list[frozenset[str]]
    leaders: list[str | None]
    told: list[Told]
    illness: Spell | None
    good: int | None

    @property
    def spells(self) -> tuple[Spell, ...]:
        """All spells that warned or paged, those that have ended first."""
        found = (*self.state.ended, *self.state.standing.values())
        return tuple(spell for spell in found if spell.severity is not Severity.INFO)

    @property
    def pages(self) -> list[Told]:
        """The messages that were pages."""
        return [told for told in self.told if told.severity is Severity.PAGE]

    @property
    def first_cause(self) -> str | None:
        """The finding that led after the row of the first message."""
        return self.leaders[self.told[0].row] if self.told else None


class Course:
    """Collects a judged run row by row; messages are sent as the service sends them."""

    def __init__(self) -> None:
        self.state = JudgeState()
        self._standing: list[frozenset[str]] = []
        self._leaders: list[str | None] = []
        self._told: list[Told] = []
        self._cause: str | None = None
        self._illness: Spell | None = None
        self._good: int | None = None
        self._quiet = 0
        self._sent: dict[tuple[str, int], Severity] = {}

    def add(self, state: JudgeState) -> None:
        """Add the state after one more row; again after the last one, for the end of the run."""
        self.state, row = state, state.rows - 1
        standing = frozenset(name for name, spell in state.standing.items() if spell.severity is not Severity.INFO)
        for name in sorted(standing, key=CATALOGUE.order.__getitem__):
            spell = state.standing[name]
            key = name, spell.trip
            if state.rows > FINDINGS.by_name[name].immune_steps and self._sent.get(key) is not spell.severity:
                self._sent[key] = spell.severity
                self._told.append(Told(row, spell.severity, spell))
        self._standing[row:] = [standing]
        self._leaders[row:] = [self._led(state)]

    def _led(self, state: JudgeState) -> str | None:
        """Return what leads now; as in an incident, what a cause explains does not take the lead from it."""
        leader = leader_of(state, CATALOGUE)
        self._quiet = self._quiet + 1 if leader is None else 0
        if self._quiet >= QUIET_STEPS:
            self._cause = None
        if leader is None:
            return None
        if not (self._told and self._cause and explains(CATALOGUE, self._cause, leader.finding)):
            self._cause, self._illness = leader.finding, onset_of_illness(state, leader)
            self._good = last_good_of(state, self._illness, CATALOGUE).good
        return self._cause

    def run(self) -> FoldedRun:
        """Return the run so far."""
        return FoldedRun(self.state, self._standing, self._leaders, self._told, self._illness, self._good)


def folded(rows: Iterable[Row]) -> FoldedRun:
    """Fold the rows of a whole run."""
    course = Course()
    for row in rows:
        course.add(JUDGE.fold(course.state, row))
    if course.state.rows:
        course.add(JUDGE.finish(course.state))
    return course.run()

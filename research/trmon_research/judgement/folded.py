"""Rows folded through the judge: what stood after each row, what was sent, and the state at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Row, Spell
from trmon.domain.findings.verdict import leader_of, onset_of_illness
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.severity import Severity

CATALOGUE = builtin_catalogue()
JUDGE = Judge(CATALOGUE)
RULES = builtin_rules().by_name


@dataclass(frozen=True, slots=True)
class Told:
    """A message after a row, the first about a spell or that it has become worse."""

    row: int
    severity: Severity
    spell: Spell


@dataclass(frozen=True, slots=True)
class FoldedRun:
    """A judged run: `standing` and `leaders` after each row, [rows], messages in order, and the last illness.

    `illness` is the spell whose onset the incident had after the last row with a leader; None if none ever led.
    """

    state: JudgeState
    standing: list[frozenset[str]]
    leaders: list[str | None]
    told: list[Told]
    illness: Spell | None

    @property
    def spells(self) -> tuple[Spell, ...]:
        """All spells that warned or paged, those that have ended first."""
        found = (*self.state.ended, *self.state.standing.values())
        return tuple(spell for spell in found if spell.severity is not Severity.INFO)

    @property
    def stands(self) -> frozenset[str]:
        """The findings that warn or page after the last row."""
        return standing_in(self.state)


def standing_in(state: JudgeState) -> frozenset[str]:
    """Return the findings that warn or page."""
    return frozenset(name for name, spell in state.standing.items() if spell.severity is not Severity.INFO)


def folded(rows: Iterable[Row]) -> FoldedRun:
    """Fold the rows of a whole run; messages are sent as the service sends them."""
    state, illness = JudgeState(), None
    standing: list[frozenset[str]] = []
    leaders: list[str | None] = []
    told: list[Told] = []
    sent: dict[tuple[str, int], Severity] = {}

    def note(state: JudgeState, row: int) -> None:
        nonlocal illness
        leader = leader_of(state, CATALOGUE)
        illness = illness if leader is None else onset_of_illness(state, leader)
        standing.append(standing_in(state))
        leaders.append(None if leader is None else leader.finding)
        for finding, spell in state.standing.items():
            if spell.severity is Severity.INFO or state.rows <= RULES[finding].immune_steps:
                continue
            if sent.get((finding, spell.trip)) not in (spell.severity, Severity.PAGE):
                sent[finding, spell.trip] = spell.severity
                told.append(Told(row, spell.severity, spell))

    last: JudgeState | None = None
    for row in rows:
        if last is not None:
            note(last, last.rows - 1)
        last = state = JUDGE.fold(state, row)
    if last is not None:
        state = JUDGE.finish(state)
        note(state, state.rows - 1)
    return FoldedRun(state, standing, leaders, told, illness)

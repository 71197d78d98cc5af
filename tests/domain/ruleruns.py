"""Runs as rules see them: a real row, made ill step by step, through the real stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from tests.domain.stages.closings import closing, watch
from tests.domain.trainer import report
from trmon.domain.batch import BatchRow
from trmon.domain.identity import BatchKey
from trmon.domain.mind import RunMind
from trmon.domain.pipeline import close
from trmon.domain.stages.detect import detect
from trmon.domain.stages.draft import Draft
from trmon.domain.stages.fold import fold
from trmon.domain.stages.transition import transition

QUIET_STEPS = 130
"""Enough for every window and baseline to be full."""
SCALARS = {"grad_norm": 1.0, "grad_variance": 1.0, "router_flip_rate": 0.0, "lr": 1e-6}

Told = tuple[str, str, int]
"""A rule, a state and a step."""


@cache
def healthy_row() -> BatchRow:
    """Return the row that the pipeline makes of a healthy batch of three policies."""
    row = close(closing(report(0))).row
    assert row is not None
    given = {"clip_fraction": 0.1, "zero_variance_groups": 0.2, "bound_vacuous": 0.0}
    return replace(row, signals={**row.signals, **given})


@cache
def quiet_mind() -> RunMind:
    """Return the mind of a run after enough healthy steps."""
    return RuleRun().tell({}, steps=QUIET_STEPS).mind


@dataclass
class RuleRun:
    """One run; `tell` lets it make steps, `told` is what the alerts of its rules did."""

    mode: str = "observe"
    mind: RunMind = field(default_factory=RunMind)
    told: list[Told] = field(default_factory=list)
    step: int = 0

    def tell(self, changes: Mapping[str, float], *, steps: int = 1) -> RuleRun:
        """Make steps whose numbers are healthy but for these."""
        for _ in range(steps):
            self._row(changes)
            self.step += 1
        return self

    def _row(self, changes: Mapping[str, float]) -> None:
        usual = healthy_row()
        row = replace(
            usual,
            key=BatchKey(1, self.step, None),
            ordinal=self.step + 1,
            closed_at=1000.0 + self.step,
            mode=self.mode,
            scalars={name: changes.get(name, value) for name, value in SCALARS.items()},
            signals={**usual.signals, **{name: value for name, value in changes.items() if name not in SCALARS}},
        )
        folded = fold(Draft(watch=watch(), mind=self.mind, row=row))
        judged = transition(detect(replace(folded, row=_with_history(folded.row, changes))))
        self.mind = judged.mind
        for moved in judged.transitions:
            if moved.alert is not None and moved.event is not None:
                self.told.append((moved.alert.rule, moved.event.state.value, moved.event.step))


def _with_history(row: BatchRow, changes: Mapping[str, float]) -> BatchRow:
    """What a case says of the run's history outweighs what the fold made of it."""
    return replace(row, signals={name: changes.get(name, value) for name, value in row.signals.items()})


def told(changes: Mapping[str, float], *, steps: int, rule: str, after: int = 0) -> list[Told]:
    """Return what a rule does in a run that turns ill for some steps, and is healthy afterwards."""
    run = RuleRun(mind=quiet_mind(), step=QUIET_STEPS).tell(changes, steps=steps).tell({}, steps=after)
    return of(run.told, rule)


def of(found: Iterable[Told], rule: str) -> list[Told]:
    """Return what one rule did."""
    return [one for one in found if one[0] == rule]

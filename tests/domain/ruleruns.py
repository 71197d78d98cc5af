"""Runs as rules see them: real reports, made ill step by step, through every stage of the pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from tests.domain.illness import Numbers, batch_of
from tests.domain.stages.closings import closing, pass_context
from trmon.domain.batches.batch import BatchRow
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.state.pipeline_state import PipelineState

QUIET_STEPS = 130
"""Enough for every window and baseline to be full."""
WATCH = pass_context()

Told = tuple[str, str, int]
"""A rule, a state and a step."""


@cache
def quiet_mind(usual: tuple[tuple[str, float], ...] = ()) -> PipelineState:
    """Return the mind of a run after enough steps with its usual numbers, healthy ones if none are given."""
    return RuleRun().tell(dict(usual), steps=QUIET_STEPS).pipeline_state


@dataclass
class RuleRun:
    """One run; `tell` lets it make steps, `told` is what the alerts of its rules did, `row` its newest row."""

    mode: str = "observe"
    pipeline_state: PipelineState = field(default_factory=PipelineState)
    told: list[Told] = field(default_factory=list)
    step: int = 0
    row: BatchRow | None = None

    def tell(self, numbers: Numbers, *, steps: int = 1) -> RuleRun:
        """Make steps whose numbers are healthy but for these."""
        batch = batch_of(tuple(sorted(numbers.items())))
        for _ in range(steps):
            reports = batch.reports(self.step, mode=self.mode)
            now = replace(WATCH, now=1000.0 + self.step)
            published = close_batch(closing(*reports, pipeline_state=self.pipeline_state, context=now))
            self.pipeline_state, self.row = published.pipeline_state, published.row
            rules = {alert.identity: alert.rule for alert in published.alerts}
            self.told += [(rules[e.identity], e.state.value, e.step) for e in published.alert_events]
            self.step += 1
        return self


def run(numbers: Numbers, *, steps: int, after: int = 0, usual: Numbers | None = None) -> RuleRun:
    """Return a run that turns ill for some steps, and is as usual afterwards."""
    known = usual or {}
    made = RuleRun(pipeline_state=quiet_mind(tuple(sorted(known.items()))), step=QUIET_STEPS)
    return made.tell(numbers, steps=steps).tell(known, steps=after)


def of(found: Iterable[Told], rule: str) -> list[Told]:
    """Return what one rule did."""
    return [one for one in found if one[0] == rule]


def check(ran: RuleRun, numbers: Numbers) -> None:
    """Fail unless the pipeline measured these very numbers in the newest row."""
    assert ran.row is not None
    known = {**ran.row.signals, **ran.row.scalars}
    measured = {name: known.get(name, math.nan) for name in numbers}
    assert measured == pytest.approx(dict(numbers), rel=1e-9, nan_ok=True)

"""Runs for tests of rules: real reports with faults, through all stages of the pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from tests.domain.illness import Numbers, batch_of
from tests.domain.pipeline.closings import closing, pass_context
from trmon.domain.alerts.alert import INCIDENT_RULE
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.rules.rule_yaml import builtin_rules

QUIET_STEPS = 130
"""Enough steps to fill all windows and baselines."""
CONTEXT = pass_context(rules=tuple(rule for rule in builtin_rules() if not rule.is_prediction))
"""Without predictions, which depend on the fitted model; tests/domain/rules/test_risk_rules.py has them."""

AlertStep = tuple[str, str, int]
"""A rule, a state and a step."""


@cache
def healthy_state(usual: tuple[tuple[str, float], ...] = ()) -> PipelineState:
    """Return the pipeline state after enough steps with the usual numbers, by default healthy ones."""
    return RuleRun().make_steps(dict(usual), steps=QUIET_STEPS).pipeline_state


@dataclass
class RuleRun:
    """One run; `make_steps` adds steps, `row` is its newest row.

    `events` are those of its rules' alerts, `incidents` those of its incidents.
    """

    mode: str = "observe"
    pipeline_state: PipelineState = field(default_factory=PipelineState)
    events: list[AlertStep] = field(default_factory=list)
    incidents: list[AlertStep] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    step: int = 0
    row: BatchRow | None = None

    def make_steps(self, numbers: Numbers, *, steps: int = 1) -> RuleRun:
        """Add steps with these numbers; all others are healthy."""
        batch = batch_of(tuple(sorted(numbers.items())))
        for _ in range(steps):
            reports = batch.reports(self.step, mode=self.mode)
            now = replace(CONTEXT, now=1000.0 + self.step)
            published = close_batch(closing(*reports, pipeline_state=self.pipeline_state, context=now))
            self.pipeline_state, self.row = published.pipeline_state, published.row
            rules = {alert.identity: alert.rule for alert in published.alerts}
            events = [(rules[e.identity], e.state.value, e.step) for e in published.alert_events]
            self.events += [event for event in events if event[0] != INCIDENT_RULE]
            self.incidents += [event for event in events if event[0] == INCIDENT_RULE]
            self.deliveries += published.deliveries
            self.step += 1
        return self


def run(numbers: Numbers, *, steps: int, after: int = 0, usual: Numbers | None = None) -> RuleRun:
    """Return a run with these numbers for some steps, and with the usual ones afterwards."""
    known = usual or {}
    made = RuleRun(pipeline_state=healthy_state(tuple(sorted(known.items()))), step=QUIET_STEPS)
    return made.make_steps(numbers, steps=steps).make_steps(known, steps=after)


def of(found: Iterable[AlertStep], rule: str) -> list[AlertStep]:
    """Return the events of one rule."""
    return [one for one in found if one[0] == rule]


def check(ran: RuleRun, numbers: Numbers) -> None:
    """Fail unless the newest row has these numbers."""
    assert ran.row is not None
    known = {**ran.row.signals, **ran.row.scalars}
    measured = {name: known.get(name, math.nan) for name in numbers}
    assert measured == pytest.approx(dict(numbers), rel=1e-9, nan_ok=True)

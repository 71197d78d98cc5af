"""Runs tests of rules: passes their series through the pipeline and returns the alerts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from msgspec import structs

from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.pipeline.rule_test_yaml import REPORTED_STATES, ExpectedAlert, RuleTest
from trmon.domain.pipeline.stages.detect import detect_findings
from trmon.domain.pipeline.stages.draft import DraftRow
from trmon.domain.pipeline.stages.fold import fold_row
from trmon.domain.pipeline.stages.transition import apply_transitions
from trmon.domain.pipeline.state_rules import apply_run_end
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules.rule import Rule, RuleSet
from trmon.domain.rules.signal_reader import SCALAR_PREFIX, is_scalar
from trmon.domain.runs.run import Run, RunState
from trmon.domain.state.pipeline_state import PipelineState

_RUN = Run(
    id=1,
    key=RunKey("rules", "test"),
    state=RunState.RUNNING,
    owner=None,
    tags=(),
    config={},
    mode="observe",
    created_at=0.0,
    last_report_at=None,
    last_step=None,
    attempt_id=1,
)


def run_rule_test(test: RuleTest, rules: tuple[Rule, ...]) -> tuple[ExpectedAlert, ...]:
    """Return the alerts that the series of a test raise and resolve, in their order; incidents are left out."""
    pipeline_state, alerts = PipelineState(), []
    context = _context_of_test(test, rules)
    for row, signals in _rows(test):
        folded = fold_row(DraftRow(context=context, pipeline_state=pipeline_state, row=row))
        row = structs.replace(folded.row, signals={**folded.row.signals, **signals})
        transitioned = apply_transitions(detect_findings(replace(folded, row=row)))
        pipeline_state = transitioned.pipeline_state
        alerts += list(_reported_alerts(transitioned.transitions))
    last, _ = apply_run_end(context=context, pipeline_state=pipeline_state, now=0.0)
    return (*alerts, *_reported_alerts(last))


def _rows(test: RuleTest) -> Iterator[tuple[BatchRow, dict[str, float]]]:
    """Yield one row per step, and the signals that the test gives."""
    for step, numbers in enumerate(zip_longest(*test.series.values(), fillvalue=math.nan)):
        given = {name: value for name, value in zip(test.series, numbers, strict=True) if not math.isnan(value)}
        scalars = {name.removeprefix(SCALAR_PREFIX): value for name, value in given.items() if is_scalar(name)}
        signals = {name: value for name, value in given.items() if not is_scalar(name)}
        yield _row(test, step=step, signals=signals, scalars=scalars), signals


def _row(test: RuleTest, *, step: int, signals: dict[str, float], scalars: dict[str, float]) -> BatchRow:
    return BatchRow(
        run_id=_RUN.id,
        key=BatchKey(1, step, None),
        ordinal=step + 1,
        closed_at=step * test.step_seconds,
        n_sequences=0,
        n_tokens=0,
        n_ranks=1,
        missing_ranks=(),
        complete=True,
        revised=False,
        mode=test.mode,
        primary_pair=test.primary,
        kl_is="sampled",
        policy_hash=None,
        mismatches=0,
        last_report_id=step + 1,
        signals=signals,
        scalars=scalars,
    )


def _context_of_test(test: RuleTest, rules: tuple[Rule, ...]) -> PassContext:
    return PassContext(
        run=replace(_RUN, mode=test.mode),
        policies=PolicyRegistry.of(default_version(now=0.0)),
        rules=RuleSet(rules),
        receivers=(),
        public_url=None,
        now=0.0,
    )


def _reported_alerts(transitions: tuple[Transition, ...]) -> Iterator[ExpectedAlert]:
    for transition in transitions:
        alert, event = transition.alert, transition.event
        if alert is None or event is None or alert.is_incident or event.state not in REPORTED_STATES:
            continue
        yield ExpectedAlert(alert.rule, event.state.value, event.step)

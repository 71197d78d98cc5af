"""Fold: adds a row to the state of its run, and detects the findings of the rules over it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import structs

from trmon.domain.alerts.alert import Transition
from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.framework_names.translation import with_canonical
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.judging import BASELINE, config_digest, judge_pending, with_row
from trmon.domain.pipeline.state import GAPS, GAUGE_KEYS, PassContext, PipelineState
from trmon.domain.rules.condition import SignalMemory, SignalReader, Truth
from trmon.domain.rules.rule import RememberedSignals, RowSelection, Rule, RuleFinding
from trmon.domain.signals.run_features import FEATURE_SIGNALS, FeatureState, describe_drift

STEP_SECONDS = "step_seconds"
HISTORICAL = frozenset((STEP_SECONDS, BASELINE, *FEATURE_SIGNALS))
"""Signals that are computed from the history of a run; a revision keeps their values."""


def fold_row(closing: ClosingRow) -> ClosingRow:
    """Return the row with its historical signals, and the state after it.

    A row is folded only once, and only if it follows all folded rows. So the stored rows alone, in the order of their
    ordinals, determine which of them are folded into the state.
    """
    pipeline_state, row = closing.pipeline_state, closing.row
    if not pipeline_state.follows(row.key):
        pipeline_state = structs.replace(pipeline_state, ordinal=max(pipeline_state.ordinal, row.ordinal))
        return replace(closing, row=_with(row, {STEP_SECONDS: math.nan}), pipeline_state=pipeline_state)
    began_step = pipeline_state.begins_step(row.key)
    has_rollout_row = row.key.update is None or (not began_step and pipeline_state.has_rollout_row)
    is_gauge = row.key.update is None or not has_rollout_row
    judged: tuple[Transition, ...] = ()
    if began_step:
        pipeline_state = _with_new_step(pipeline_state, row, made_at=closing.made_at)
        judged, pipeline_state = judge_pending(pipeline_state, context=closing.context)
    pipeline_state, baseline = _baseline(pipeline_state, row, context=closing.context, is_stored=closing.is_stored)
    historical = {STEP_SECONDS: pipeline_state.step_seconds, **baseline}
    gauge_keys = pipeline_state.gauge_keys
    if is_gauge:
        features = _features_after(pipeline_state, row, begins_step=began_step)
        historical |= features.after.signals()
        gauge_keys = (*(gauge_keys if began_step else gauge_keys[:-1]), row.key)[-GAUGE_KEYS:]
    else:
        features = pipeline_state.features.with_update(row.numbers)
    pipeline_state = structs.replace(
        pipeline_state,
        features=features,
        ordinal=row.ordinal,
        folded=row.key,
        has_rollout_row=has_rollout_row,
        gauge_keys=gauge_keys,
    )
    folded_row = _with(row, historical)
    pipeline_state = with_row(pipeline_state, folded_row, begins_step=began_step, is_gauge=is_gauge)
    return replace(
        closing,
        row=folded_row,
        pipeline_state=pipeline_state,
        transitions=judged,
        folded=True,
        began_step=began_step,
        is_gauge=is_gauge,
    )


def _baseline(
    pipeline_state: PipelineState, row: BatchRow, *, context: PassContext, is_stored: bool
) -> tuple[PipelineState, dict[str, float]]:
    """Return the state and the signal of a row whose configuration is another one: a new baseline begins.

    A stored row says itself which one it has, since the configuration of its time is not kept.
    """
    digest = config_digest(context.run.config)
    baseline = pipeline_state.baseline + (pipeline_state.config not in ("", digest))
    if is_stored:
        baseline = int(row.signals.get(BASELINE, 0.0))
    state = structs.replace(pipeline_state, baseline=baseline, config=digest)
    return state, {BASELINE: float(baseline)} if baseline else {}


def with_signals(closing: ClosingRow, signals: Mapping[str, float]) -> ClosingRow:
    """Return a folded row with other values of signals, which are judged in place of those that the fold computed."""
    row = _with(closing.row, signals)
    state = with_row(closing.pipeline_state, row, begins_step=False, is_gauge=closing.is_gauge)
    return replace(closing, row=row, pipeline_state=state)


def amend_row(closing: ClosingRow) -> ClosingRow:
    """Return a revised row with its former historical signals, and the unchanged state."""
    former = closing.former
    assert former is not None
    kept = {name: value for name, value in former.signals.items() if name in HISTORICAL}
    scalars = {**former.scalars, **closing.row.scalars}
    return replace(closing, row=structs.replace(_with(closing.row, kept), scalars=scalars))


def _with_new_step(pipeline_state: PipelineState, row: BatchRow, *, made_at: float | None) -> PipelineState:
    seconds = row.signals.get(STEP_SECONDS, math.nan)
    same_attempt = pipeline_state.folded is not None and pipeline_state.folded.attempt_id == row.key.attempt_id
    if made_at is not None and pipeline_state.began_at is not None and same_attempt:
        seconds = made_at - pipeline_state.began_at
    gaps = pipeline_state.gaps_seconds if same_attempt else ()
    return structs.replace(
        pipeline_state,
        steps=pipeline_state.steps + 1,
        first_key=row.key,
        began_at=made_at,
        step_seconds=seconds,
        gaps_seconds=gaps if math.isnan(seconds) else (*gaps, seconds)[-GAPS:],
    )


def _features_after(pipeline_state: PipelineState, row: BatchRow, *, begins_step: bool) -> FeatureState:
    return pipeline_state.features.with_row(
        row.numbers, with_canonical(row.scalars), begins_step=begins_step, is_rollout=row.key.update is None
    )


def _with(row: BatchRow, historical: Mapping[str, float]) -> BatchRow:
    return structs.replace(row, signals={**row.signals, **historical})


Numbers: TypeAlias = Mapping[str, float]
"""The scalars and signals of a row by name; a signal takes precedence over a scalar."""


def detect_findings(closing: ClosingRow) -> ClosingRow:
    """Return the row with the findings that it makes final, and keep the provisional ones in the state.

    A rule over gauge rows reads the rollout row of the step at once, or without one the last update of the step, which
    is known when the next step begins. A rule over trainer scalars also waits for the next step, since scalars may
    arrive later. A rule over every update is true of a step if it is true of any row of the step.
    """
    if not closing.folded:
        return closing
    context, row, state = closing.context, closing.row, closing.pipeline_state
    numbers, remembered = row.numbers, context.rules.remembered
    of_updates = _after(state.update_memory, row, numbers, remembered=remembered[RowSelection.EVERY_UPDATE])
    of_gauges = state.memory
    if closing.is_gauge:
        of_gauges = _after(of_gauges, row, numbers, remembered=remembered[RowSelection.GAUGE])
    pipeline_state = structs.replace(state, memory=of_gauges, update_memory=of_updates)
    final: list[tuple[Rule, RuleFinding]] = []
    provisional = dict(pipeline_state.provisional)
    if closing.began_step:
        final += [(rule, provisional[rule.name]) for rule in context.rules.over_signals if rule.name in provisional]
        provisional = {}
    reading = context.rules.over_signals if closing.is_gauge else context.rules.over_every_update
    found, row = _evaluate_rules(reading, row, numbers, pipeline_state=pipeline_state)
    for rule, finding in found:
        if rule.reads is RowSelection.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.worse_of(finding) if former else finding
        elif row.key.update is not None or rule.reads_scalars:
            provisional[rule.name] = finding
        else:
            final.append((rule, finding))
    pipeline_state = structs.replace(pipeline_state, provisional=provisional)
    return replace(closing, row=row, pipeline_state=pipeline_state, findings=tuple(final))


def reconsider(row: BatchRow, *, context: PassContext, pipeline_state: PipelineState) -> tuple[BatchRow, PipelineState]:
    """Return the row with its features, and the state, after scalars arrived for the gauge row of its newest step.

    Findings of earlier steps, and of the last step of a run that ended, are final: later scalars change only the
    stored row.
    """
    if pipeline_state.begins_step(row.key) or pipeline_state.gauge_keys[-1:] != (row.key,):
        return row, pipeline_state
    features = _features_after(pipeline_state, row, begins_step=False)
    row = _with(row, features.after.signals())
    numbers = row.numbers
    pipeline_state = with_row(pipeline_state, row, begins_step=False, is_gauge=True)
    pipeline_state = structs.replace(
        pipeline_state,
        features=features,
        memory=_after(pipeline_state.memory, row, numbers, remembered=context.rules.remembered[RowSelection.GAUGE]),
    )
    reading = (rule for rule in context.rules.over_signals if rule.reads_scalars and rule.reads is RowSelection.GAUGE)
    found, _ = _findings(reading, row, numbers, pipeline_state=pipeline_state)
    updated = {rule.name: finding for rule, finding in found if rule.name in pipeline_state.provisional}
    return row, structs.replace(pipeline_state, provisional={**pipeline_state.provisional, **updated})


def _after(memory: SignalMemory, row: BatchRow, numbers: Numbers, *, remembered: RememberedSignals) -> SignalMemory:
    reader = SignalReader(numbers, row.primary_pair, memory)
    return memory.updated(reader, step=row.key.step, windows=remembered.windows, baselines=remembered.baselines)


def _evaluate_rules(
    rules: Sequence[Rule], row: BatchRow, numbers: Numbers, *, pipeline_state: PipelineState
) -> tuple[list[tuple[Rule, RuleFinding]], BatchRow]:
    """Return the findings, and the row with the failed rules as quarantined parts; a failed rule has no finding."""
    found, failed = _findings(rules, row, numbers, pipeline_state=pipeline_state)
    if not failed:
        return found, row
    row = row.with_quarantined(quarantined(QuarantinePart.RULE, name, error) for name, error in failed.items())
    working = [rule for rule in rules if rule.name not in failed]
    # Evaluated again: a rule may read the number of quarantined parts.
    return _findings(working, row, row.numbers, pipeline_state=pipeline_state)[0], row


def _findings(
    rules: Iterable[Rule], row: BatchRow, numbers: Numbers, *, pipeline_state: PipelineState
) -> tuple[list[tuple[Rule, RuleFinding]], dict[str, Exception]]:
    """Return the findings of rules over a row, and the errors of failed rules by name."""
    found: list[tuple[Rule, RuleFinding]] = []
    failed: dict[str, Exception] = {}
    of_gauges = SignalReader(numbers, row.primary_pair, pipeline_state.memory)
    of_updates = SignalReader(numbers, row.primary_pair, pipeline_state.update_memory)
    for rule in rules:
        try:
            evaluation = rule.condition.evaluate(of_gauges if rule.reads is RowSelection.GAUGE else of_updates)
        except Exception as error:  # noqa: BLE001 - a rule that fails is recorded on the row and does not stop the others
            failed[rule.name] = error
            continue
        can_raise = Truth.TRUE in (evaluation.raised.truth, evaluation.lingering.truth)
        finding = RuleFinding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=pipeline_state.steps,
            mode=row.mode,
            raised=evaluation.raised,
            lingering=evaluation.lingering,
            drift=describe_drift(numbers) if "{drift}" in rule.summary and can_raise else "",
        )
        found.append((rule, finding))
    return found, failed

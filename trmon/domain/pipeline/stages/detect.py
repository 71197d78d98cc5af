"""Detect: evaluates the rules over a row; findings of a step become final once all its rows are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from trmon.domain.batches.batch import BatchRow, QuarantinePart, quarantined
from trmon.domain.collapse_risk.risk_reading import describe_drivers
from trmon.domain.context.pass_context import PassContext
from trmon.domain.pipeline.stages.fold import FoldedRow
from trmon.domain.rules.rule import RememberedSignals, RowSelection, Rule, RuleFinding
from trmon.domain.rules.signal_reader import SignalMemory, SignalReader
from trmon.domain.signals.drift_features import describe_drift
from trmon.domain.state.pipeline_state import PipelineState

Numbers: TypeAlias = Mapping[str, float]
"""The scalars and signals of a row by name; a signal takes precedence over a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedFindings:
    """The folded row and the findings that became final, oldest first, each with its rule."""

    folded: FoldedRow
    findings: tuple[tuple[Rule, RuleFinding], ...]


def detect_findings(folded: FoldedRow) -> DetectedFindings:
    """Return the findings that this row makes final, and keep the provisional ones in the state.

    A rule over gauge rows reads the rollout row of the step at once, or without one the last update of the step, which
    is known when the next step begins. A rule over trainer scalars also waits for the next step, since scalars may
    arrive later. A rule over every update is true of a step if it is true of any row of the step.
    """
    if not folded.folded:
        return DetectedFindings(folded=folded, findings=())
    context, row = folded.draft.context, folded.row
    numbers = row.numbers
    pipeline_state = _with_memory(folded.pipeline_state, row, numbers, context=context, is_gauge=folded.is_gauge)
    final: list[tuple[Rule, RuleFinding]] = []
    provisional = dict(pipeline_state.provisional)
    if folded.began_step:
        final += [(rule, provisional[rule.name]) for rule in context.signal_rules if rule.name in provisional]
        provisional = {}
    reading = context.signal_rules if folded.is_gauge else context.rules.over_every_update
    found, row = _evaluate_rules(reading, row, numbers, pipeline_state=pipeline_state)
    for rule, finding in found:
        if rule.reads is RowSelection.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.worse_of(finding) if former else finding
        elif row.key.update is not None or rule.reads_scalars:
            provisional[rule.name] = finding
        else:
            final.append((rule, finding))
    folded = replace(folded, row=row, pipeline_state=structs.replace(pipeline_state, provisional=provisional))
    return DetectedFindings(folded=folded, findings=tuple(final))


def reconsider(row: BatchRow, *, context: PassContext, pipeline_state: PipelineState) -> tuple[BatchRow, PipelineState]:
    """Return the row with its features, and the state, after scalars arrived for the gauge row of its newest step.

    Rules over scalars read the row again.

    Findings of earlier steps, and of the last step of a run that ended, are final: later scalars change only the
    stored row.
    """
    if pipeline_state.begins_step(row.key) or pipeline_state.gauge_keys[-1:] != (row.key,):
        return row, pipeline_state
    features = pipeline_state.features.with_row(
        row.numbers, row.scalars, begins_step=False, is_rollout=row.key.update is None
    )
    row = structs.replace(row, signals={**row.signals, **features.after.signals()})
    numbers = row.numbers
    pipeline_state = structs.replace(
        pipeline_state,
        features=features,
        memory=_after(pipeline_state.memory, row, numbers, remembered=context.rules.remembered[RowSelection.GAUGE]),
    )
    reading = (rule for rule in context.signal_rules if rule.reads_scalars and rule.reads is RowSelection.GAUGE)
    found, _ = _findings(reading, row, numbers, pipeline_state=pipeline_state)
    updated = {rule.name: finding for rule, finding in found if rule.name in pipeline_state.provisional}
    return row, structs.replace(pipeline_state, provisional={**pipeline_state.provisional, **updated})


def _with_memory(
    pipeline_state: PipelineState, row: BatchRow, numbers: Numbers, *, context: PassContext, is_gauge: bool
) -> PipelineState:
    remembered = context.rules.remembered
    of_updates = _after(pipeline_state.update_memory, row, numbers, remembered=remembered[RowSelection.EVERY_UPDATE])
    of_gauges = (
        _after(pipeline_state.memory, row, numbers, remembered=remembered[RowSelection.GAUGE])
        if is_gauge
        else pipeline_state.memory
    )
    return structs.replace(pipeline_state, memory=of_gauges, update_memory=of_updates)


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
        finding = RuleFinding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=pipeline_state.steps,
            mode=row.mode,
            raised=evaluation.raised,
            lingering=evaluation.lingering,
            drift=describe_drift(numbers) if rule.names_drift and evaluation.can_raise else "",
            drivers=describe_drivers(numbers) if rule.names_drivers and evaluation.can_raise else "",
        )
        found.append((rule, finding))
    return found, failed

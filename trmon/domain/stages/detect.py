"""Detect: the rules read the row; what they say of a step is final once all that they read of it is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import QuarantinePart, quarantined
from trmon.domain.context.pass_context import PassContext
from trmon.domain.rules.rule import RowSelection, Rule, RuleFinding
from trmon.domain.rules.rule_set import RememberedSignals
from trmon.domain.rules.signal_reader import SignalMemory, SignalReader
from trmon.domain.stages.fold import FoldedRow
from trmon.domain.state.pipeline_state import PipelineState

Numbers: TypeAlias = Mapping[str, float]
"""A row's scalars and signals by name; a signal outweighs a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedFindings:
    """The folded row with the findings that are now final, oldest first, each with its rule."""

    folded: FoldedRow
    findings: tuple[tuple[Rule, RuleFinding], ...]


def detect_findings(folded: FoldedRow) -> DetectedFindings:
    """Return the findings that this row makes final, and remember the provisional ones.

    A rule over gauge rows reads the step's rollout row at once, or else the last of its updates, which is known
    when the next step begins; one over the trainer's own numbers waits as long, since they may come later. A rule
    over every update is true of a step if it is true of any row of it.
    """
    if not folded.folded:
        return DetectedFindings(folded=folded, findings=())
    context, row = folded.draft.context, folded.row
    numbers = _numbers(row)
    pipeline_state = _remembering(folded.pipeline_state, row, numbers, context=context, is_gauge=folded.is_gauge)
    final: list[tuple[Rule, RuleFinding]] = []
    provisional = dict(pipeline_state.provisional)
    if folded.began_step:
        final += [(rule, provisional[rule.name]) for rule in context.signal_rules if rule.name in provisional]
        provisional = {}
    found, row = _confined(context.signal_rules, row, pipeline_state=pipeline_state)
    for rule, finding in found:
        if rule.reads is RowSelection.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.or_worse(finding) if former else finding
        elif folded.is_gauge and (row.key.update is not None or rule.reads_scalars):
            provisional[rule.name] = finding
        elif folded.is_gauge:
            final.append((rule, finding))
    folded = replace(folded, row=row, pipeline_state=structs.replace(pipeline_state, provisional=provisional))
    return DetectedFindings(folded=folded, findings=tuple(final))


def reconsider(row: BatchRow, *, context: PassContext, pipeline_state: PipelineState) -> PipelineState:
    """Return the mind once scalars came for the gauge row of its newest step, which rules over them read again.

    A row of an earlier step, or of the last one of a run that ended, has been judged: scalars that come so late change
    what is kept, and nothing more.
    """
    if pipeline_state.begins_step(row.key) or pipeline_state.gauge_keys[-1:] != (row.key,):
        return pipeline_state
    numbers = _numbers(row)
    pipeline_state = structs.replace(
        pipeline_state, memory=_after(pipeline_state.memory, row, numbers, kept=context.rules.kept[RowSelection.GAUGE])
    )
    reading = (rule for rule in context.signal_rules if rule.reads_scalars and rule.reads is RowSelection.GAUGE)
    found, _ = _findings(reading, row, numbers, pipeline_state=pipeline_state)
    again = {rule.name: finding for rule, finding in found if rule.name in pipeline_state.provisional}
    return structs.replace(pipeline_state, provisional={**pipeline_state.provisional, **again})


def _remembering(
    pipeline_state: PipelineState, row: BatchRow, numbers: Numbers, *, context: PassContext, is_gauge: bool
) -> PipelineState:
    kept = context.rules.kept
    of_updates = _after(pipeline_state.update_memory, row, numbers, kept=kept[RowSelection.EVERY_UPDATE])
    of_gauges = (
        _after(pipeline_state.memory, row, numbers, kept=kept[RowSelection.GAUGE])
        if is_gauge
        else pipeline_state.memory
    )
    return structs.replace(pipeline_state, memory=of_gauges, update_memory=of_updates)


def _after(memory: SignalMemory, row: BatchRow, numbers: Numbers, *, kept: RememberedSignals) -> SignalMemory:
    readout = SignalReader(numbers, row.primary_pair, memory)
    return memory.after(readout, step=row.key.step, windows=kept.windows, baselines=kept.baselines)


def _confined(
    rules: Sequence[Rule], row: BatchRow, *, pipeline_state: PipelineState
) -> tuple[list[tuple[Rule, RuleFinding]], BatchRow]:
    """Return the findings, and the row with the rules that failed over it: these say nothing of this row."""
    found, failed = _findings(rules, row, _numbers(row), pipeline_state=pipeline_state)
    if not failed:
        return found, row
    row = row.without(quarantined(QuarantinePart.RULE, name, error) for name, error in failed.items())
    able = [rule for rule in rules if rule.name not in failed]
    # Read once more: a rule may read how many parts were set aside.
    return _findings(able, row, _numbers(row), pipeline_state=pipeline_state)[0], row


def _findings(
    rules: Iterable[Rule], row: BatchRow, numbers: Numbers, *, pipeline_state: PipelineState
) -> tuple[list[tuple[Rule, RuleFinding]], dict[str, Exception]]:
    """Return what rules say of a row, and the errors of those that failed, by their names."""
    found: list[tuple[Rule, RuleFinding]] = []
    failed: dict[str, Exception] = {}
    of_gauges = SignalReader(numbers, row.primary_pair, pipeline_state.memory)
    of_updates = SignalReader(numbers, row.primary_pair, pipeline_state.update_memory)
    for rule in rules:
        try:
            verdict = rule.condition.evaluate(of_gauges if rule.reads is RowSelection.GAUGE else of_updates)
        except Exception as error:  # noqa: BLE001 - a rule that fails is named on the row, and stops no other
            failed[rule.name] = error
            continue
        finding = RuleFinding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=pipeline_state.steps,
            mode=row.mode,
            raised=verdict.raised,
            lingering=verdict.lingering,
        )
        found.append((rule, finding))
    return found, failed


def _numbers(row: BatchRow) -> Numbers:
    return {**row.scalars, **row.signals}

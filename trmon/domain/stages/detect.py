"""Detect: the rules read the row; what they say of a step is final once all that they read of it is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import QuarantinePart, quarantined
from trmon.domain.context.pass_context import Watch
from trmon.domain.rules.rule import Finding, Reads, Rule
from trmon.domain.rules.rule_set import Kept
from trmon.domain.rules.signal_reader import Memory, Readout
from trmon.domain.stages.fold import Folded
from trmon.domain.state.pipeline_state import RunMind

Numbers: TypeAlias = Mapping[str, float]
"""A row's scalars and signals by name; a signal outweighs a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """The folded row with the findings that are now final, oldest first, each with its rule."""

    folded: Folded
    findings: tuple[tuple[Rule, Finding], ...]


def detect(folded: Folded) -> Detected:
    """Return the findings that this row makes final, and remember the provisional ones.

    A rule over gauge rows reads the step's rollout row at once, or else the last of its updates, which is known
    when the next step begins; one over the trainer's own numbers waits as long, since they may come later. A rule
    over every update is true of a step if it is true of any row of it.
    """
    if not folded.folded:
        return Detected(folded=folded, findings=())
    watch, row = folded.draft.watch, folded.row
    numbers = _numbers(row)
    mind = _remembering(folded.mind, row, numbers, watch=watch, is_gauge=folded.is_gauge)
    final: list[tuple[Rule, Finding]] = []
    provisional = dict(mind.provisional)
    if folded.began_step:
        final += [(rule, provisional[rule.name]) for rule in watch.signal_rules if rule.name in provisional]
        provisional = {}
    found, row = _confined(watch.signal_rules, row, mind=mind)
    for rule, finding in found:
        if rule.reads is Reads.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.or_worse(finding) if former else finding
        elif folded.is_gauge and (row.key.update is not None or rule.reads_scalars):
            provisional[rule.name] = finding
        elif folded.is_gauge:
            final.append((rule, finding))
    folded = replace(folded, row=row, mind=structs.replace(mind, provisional=provisional))
    return Detected(folded=folded, findings=tuple(final))


def reconsider(row: BatchRow, *, watch: Watch, mind: RunMind) -> RunMind:
    """Return the mind once scalars came for the gauge row of its newest step, which rules over them read again.

    A row of an earlier step, or of the last one of a run that ended, has been judged: scalars that come so late change
    what is kept, and nothing more.
    """
    if mind.begins_step(row.key) or mind.gauge_keys[-1:] != (row.key,):
        return mind
    numbers = _numbers(row)
    mind = structs.replace(mind, memory=_after(mind.memory, row, numbers, kept=watch.rules.kept[Reads.GAUGE]))
    reading = (rule for rule in watch.signal_rules if rule.reads_scalars and rule.reads is Reads.GAUGE)
    found, _ = _findings(reading, row, numbers, mind=mind)
    again = {rule.name: finding for rule, finding in found if rule.name in mind.provisional}
    return structs.replace(mind, provisional={**mind.provisional, **again})


def _remembering(mind: RunMind, row: BatchRow, numbers: Numbers, *, watch: Watch, is_gauge: bool) -> RunMind:
    kept = watch.rules.kept
    of_updates = _after(mind.update_memory, row, numbers, kept=kept[Reads.EVERY_UPDATE])
    of_gauges = _after(mind.memory, row, numbers, kept=kept[Reads.GAUGE]) if is_gauge else mind.memory
    return structs.replace(mind, memory=of_gauges, update_memory=of_updates)


def _after(memory: Memory, row: BatchRow, numbers: Numbers, *, kept: Kept) -> Memory:
    readout = Readout(numbers, row.primary_pair, memory)
    return memory.after(readout, step=row.key.step, windows=kept.windows, baselines=kept.baselines)


def _confined(rules: Sequence[Rule], row: BatchRow, *, mind: RunMind) -> tuple[list[tuple[Rule, Finding]], BatchRow]:
    """Return the findings, and the row with the rules that failed over it: these say nothing of this row."""
    found, failed = _findings(rules, row, _numbers(row), mind=mind)
    if not failed:
        return found, row
    row = row.without(quarantined(QuarantinePart.RULE, name, error) for name, error in failed.items())
    able = [rule for rule in rules if rule.name not in failed]
    # Read once more: a rule may read how many parts were set aside.
    return _findings(able, row, _numbers(row), mind=mind)[0], row


def _findings(
    rules: Iterable[Rule], row: BatchRow, numbers: Numbers, *, mind: RunMind
) -> tuple[list[tuple[Rule, Finding]], dict[str, Exception]]:
    """Return what rules say of a row, and the errors of those that failed, by their names."""
    found: list[tuple[Rule, Finding]] = []
    failed: dict[str, Exception] = {}
    of_gauges = Readout(numbers, row.primary_pair, mind.memory)
    of_updates = Readout(numbers, row.primary_pair, mind.update_memory)
    for rule in rules:
        try:
            verdict = rule.condition.evaluate(of_gauges if rule.reads is Reads.GAUGE else of_updates)
        except Exception as error:  # noqa: BLE001 - a rule that fails is named on the row, and stops no other
            failed[rule.name] = error
            continue
        finding = Finding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=mind.steps,
            mode=row.mode,
            raised=verdict.raised,
            lingering=verdict.lingering,
        )
        found.append((rule, finding))
    return found, failed


def _numbers(row: BatchRow) -> Numbers:
    return {**row.scalars, **row.signals}

"""Detect: the rules read the row; what they say of a step is final once all that they read of it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trmon.domain.batch import BatchRow
from trmon.domain.mind import RunMind
from trmon.domain.rules.measures import Keeps
from trmon.domain.rules.readout import Memory, Readout
from trmon.domain.rules.rule import Finding, InState, Reads, Rule, SideBySide, kept_for
from trmon.domain.stages.fold import Folded
from trmon.domain.watch import Watch


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
    mind = _remembering(folded.mind, row, watch=watch, is_gauge=folded.is_gauge)
    final: list[tuple[Rule, Finding]] = []
    provisional = dict(mind.provisional)
    if folded.began_step:
        final += [(rule, provisional[rule.name]) for rule in watch.signal_rules if rule.name in provisional]
        provisional = {}
    for rule, finding in _findings(row, mind=mind, watch=watch):
        if rule.reads is Reads.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.or_worse(finding) if former else finding
        elif folded.is_gauge and (row.key.update is not None or rule.reads_scalars):
            provisional[rule.name] = finding
        elif folded.is_gauge:
            final.append((rule, finding))
    folded = replace(folded, mind=replace(mind, provisional=provisional))
    return Detected(folded=folded, findings=tuple(final))


def reconsider(row: BatchRow, *, watch: Watch, mind: RunMind) -> RunMind:
    """Return the mind once scalars came for the gauge row of its newest step, which rules over them read again.

    A row of an earlier step has been judged: scalars that come so late change what is kept, and nothing more.
    """
    if mind.begins_step(row.key) or mind.gauge_keys[-1:] != (row.key,):
        return mind
    mind = replace(mind, memory=_after(mind.memory, row, rules=_reading(watch, Reads.GAUGE)))
    again = {
        rule.name: finding
        for rule, finding in _findings(row, mind=mind, watch=watch)
        if rule.reads_scalars and rule.reads is Reads.GAUGE
    }
    return replace(mind, provisional={**mind.provisional, **again})


def _remembering(mind: RunMind, row: BatchRow, *, watch: Watch, is_gauge: bool) -> RunMind:
    of_updates = _after(mind.update_memory, row, rules=_reading(watch, Reads.EVERY_UPDATE))
    of_gauges = _after(mind.memory, row, rules=_reading(watch, Reads.GAUGE)) if is_gauge else mind.memory
    return replace(mind, memory=of_gauges, update_memory=of_updates)


def _after(memory: Memory, row: BatchRow, *, rules: tuple[Rule, ...]) -> Memory:
    windows, baselines = (kept_for(rules, keeps) for keeps in (Keeps.WINDOW, Keeps.BASELINE))
    readout = _readout(row, memory=memory)
    return memory.after(readout, step=row.key.step, windows=windows, baselines=baselines)


def _reading(watch: Watch, reads: Reads) -> tuple[Rule, ...]:
    return tuple(rule for rule in watch.signal_rules if rule.reads is reads)


def _findings(row: BatchRow, *, mind: RunMind, watch: Watch) -> Iterator[tuple[Rule, Finding]]:
    readouts = {
        Reads.GAUGE: _readout(row, memory=mind.memory),
        Reads.EVERY_UPDATE: _readout(row, memory=mind.update_memory),
    }
    for rule in watch.signal_rules:
        assert not isinstance(rule.when, InState | SideBySide)
        readout = readouts[rule.reads]
        finding = Finding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=mind.steps,
            mode=row.mode,
            raised=rule.when.evaluate(readout, lingering=False),
            lingering=rule.when.evaluate(readout, lingering=True),
        )
        yield rule, finding


def _readout(row: BatchRow, *, memory: Memory) -> Readout:
    return Readout({**row.scalars, **row.signals}, row.primary_pair, memory)

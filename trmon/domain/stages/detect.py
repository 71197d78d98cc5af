"""Detect: the rules read the row; what they say of a step is final once its gauge row, or its last update, is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trmon.domain.rules import Finding, InState, Readout, Reads, Rule
from trmon.domain.stages.fold import Folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """The folded row with the findings that are now final, oldest first, each with its rule."""

    folded: Folded
    findings: tuple[tuple[Rule, Finding], ...]


def detect(folded: Folded) -> Detected:
    """Return the findings that this row makes final, and remember the provisional ones.

    A rule over gauge rows reads the step's rollout row at once, or else the last of its updates, which is known
    when the next step begins; a rule over every update is true of a step if it is true of any row of it.
    """
    if not folded.folded:
        return Detected(folded=folded, findings=())
    mind, watch = folded.mind, folded.draft.watch
    final: list[tuple[Rule, Finding]] = []
    provisional = dict(mind.provisional)
    if folded.began_step:
        final += [(rule, provisional[rule.name]) for rule in watch.signal_rules if rule.name in provisional]
        provisional = {}
    for rule, finding in _findings(folded):
        if rule.reads is Reads.EVERY_UPDATE:
            former = provisional.get(rule.name)
            provisional[rule.name] = former.or_worse(finding) if former else finding
        elif folded.row.key.update is None:
            final.append((rule, finding))
        elif folded.is_gauge:
            provisional[rule.name] = finding
    folded = replace(folded, mind=replace(mind, provisional=provisional))
    return Detected(folded=folded, findings=tuple(final))


def _findings(folded: Folded) -> Iterator[tuple[Rule, Finding]]:
    row = folded.row
    readout = Readout({**row.scalars, **row.signals}, row.primary_pair)
    for rule in folded.draft.watch.signal_rules:
        assert not isinstance(rule.when, InState)
        finding = Finding(
            rule=rule.name,
            key=row.key,
            at=row.closed_at,
            steps=folded.mind.steps,
            mode=row.mode,
            raised=rule.when.evaluate(readout, lingering=False),
            lingering=rule.when.evaluate(readout, lingering=True),
        )
        yield rule, finding

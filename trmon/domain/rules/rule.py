"""Rules: a condition, how long it must hold, how severe its alert is and what the alert says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import msgspec

from trmon.domain.findings.catalogue import Catalogue, Clause, FindingSpec
from trmon.domain.findings.judge import CLEAR_ROWS, Judge
from trmon.domain.findings.sentences import clause_words, severity_words
from trmon.domain.identity import BatchKey
from trmon.domain.rules.condition import (
    AllOf,
    AnyOf,
    Comparison,
    Evaluation,
    FindingStands,
    InState,
    SignalAbsent,
    SignalCondition,
    Truth,
    TwoTrainersLive,
    When,
    comparisons_of,
    is_scalar,
    signals_of,
)
from trmon.domain.severity import Severity
from trmon.domain.signals.run_features import SCALAR_FEATURES


class RowSelection(Enum):
    """Which rows of a step a rule reads: the gauge row, or every update (true if true for any of them)."""

    GAUGE = "gauge"
    EVERY_UPDATE = "every_update"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that raises an alert: its condition, its durations, its severity and its texts.

    `for_steps` and `for_seconds` must both have passed. In the first `immune_steps` of a run, a rule over signals
    has no effect, and a rule over states is at most a warning. `summary` may use {signal}, {value}, {threshold}, {run},
    {step}, {error}, how the trainer ended, and {drift}, the pair with most of the drift and its lag. `runbook` says
    in a line or two what to do; `meaning` is shown on the page of the rule only. `is_symptom` is true if every finding
    may lead to it. A finding is a rule, too, whose condition is that the finding stands.
    """

    name: str
    when: When
    severity: Severity
    summary: str
    severity_when_enforcing: Severity | None = None
    reads: RowSelection = RowSelection.GAUGE
    for_steps: int = 1
    for_seconds: float = 0.0
    clear_for_steps: int = 1
    immune_steps: int = 20
    labels: dict[str, str] = field(default_factory=dict)
    runbook: str = ""
    meaning: str = ""
    is_symptom: bool = False

    @property
    def is_finding(self) -> bool:
        """Whether it is a finding of the judge."""
        return isinstance(self.when, FindingStands)

    @property
    def is_of_health(self) -> bool:
        """Whether alerts of the rule join the run's incident, which is told in their place."""
        return self.is_finding or self.is_symptom

    @property
    def reads_batches(self) -> bool:
        """Whether the rule is over signals of batches; others are findings, or over the state of the run."""
        return isinstance(self.when, SignalCondition)

    @cached_property
    def condition(self) -> SignalCondition:
        """The condition over signals; only for rules that read batches."""
        assert isinstance(self.when, SignalCondition)
        return self.when

    @cached_property
    def reads_scalars(self) -> bool:
        """Whether the rule reads a trainer scalar, or a feature of one, which may arrive after the step's batches."""
        return any(is_scalar(signal) or signal in SCALAR_FEATURES for signal in signals_of(self.when))

    def severity_in(self, mode: str) -> Severity:
        """Return the severity in a run of this mode, observe or enforce."""
        return (self.severity_when_enforcing or self.severity) if mode == "enforce" else self.severity

    def identity(self, run_id: int) -> str:
        """Return the alert's identity, stable across the episodes of this rule in a run."""
        labels = ",".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return f"{run_id}/{self.name}/{labels}" if labels else f"{run_id}/{self.name}"

    def format_summary(self, evaluation: Evaluation, *, run: str, step: int, error: str = "", drift: str = "") -> str:
        """Return the summary with the values filled in."""
        return self.summary.format(
            signal=evaluation.signal,
            value=f"{evaluation.value:.4g}",
            threshold=f"{evaluation.threshold:.4g}",
            run=run,
            step=step,
            error=error,
            drift=drift,
        )


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of a rule over one step: `raised` by its thresholds, `lingering` by its clear thresholds.

    `steps` counts the steps of the run up to this one; `at` is the time at which the row was closed; `drift` names the
    pair that dominates, for rules whose summary does.
    """

    rule: str
    key: BatchKey
    at: float
    steps: int
    mode: str
    raised: Evaluation
    lingering: Evaluation
    drift: str = ""

    def worse_of(self, other: RuleFinding) -> RuleFinding:
        """Return the finding of a later update of the step, unless only this one is raised."""
        return self if self.raised.truth is Truth.TRUE and other.raised.truth is not Truth.TRUE else other


@dataclass(frozen=True, slots=True)
class RememberedSignals:
    """The signals whose history a run must keep, in the order of their names."""

    windows: tuple[str, ...]
    baselines: tuple[str, ...]


def rule_of(finding: FindingSpec) -> Rule:
    """Return the rule that a finding is."""
    return Rule(
        name=finding.id,
        when=FindingStands(finding),
        severity=finding.severity,
        summary="",
        meaning=finding.meaning,
        immune_steps=0 if finding.id in TOLD_AT_ONCE else IMMUNE_ROWS,
    )


TOLD_AT_ONCE = ("not_a_number", "corrupt_logprobs")
"""The findings that are sent in a run's first 20 rows, too. Source: findings, section 3."""
IMMUNE_ROWS = 20


@dataclass(frozen=True)
class RuleSet:
    """The active rules, in their order: the findings of a catalogue that are not turned off, then the others."""

    others: tuple[Rule, ...]
    catalogue: Catalogue

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The findings as rules, and all other rules."""
        told = (spec for spec in self.catalogue.findings if spec.clauses and spec.severity is not Severity.INFO)
        return (*map(rule_of, told), *self.others)

    @cached_property
    def judge(self) -> Judge:
        """The judge of the catalogue."""
        return Judge(self.catalogue)

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        """All rules by name."""
        return {rule.name: rule for rule in self.rules}

    @cached_property
    def of_health(self) -> frozenset[str]:
        """The names of the rules whose alerts join the run's incident."""
        return frozenset(rule.name for rule in self.rules if rule.is_of_health)

    @cached_property
    def over_signals(self) -> tuple[Rule, ...]:
        """The rules over signals of batches."""
        return tuple(rule for rule in self.rules if rule.reads_batches)

    @cached_property
    def over_every_update(self) -> tuple[Rule, ...]:
        """The rules over signals of every row; the others read gauge rows only."""
        return tuple(rule for rule in self.over_signals if rule.reads is RowSelection.EVERY_UPDATE)

    @cached_property
    def over_states(self) -> tuple[Rule, ...]:
        """The rules over the state of the run or its live launches."""
        return tuple(rule for rule in self.others if not rule.reads_batches)

    @cached_property
    def remembered(self) -> Mapping[RowSelection, RememberedSignals]:
        """The signals whose history must be kept, by the rows that rules read."""
        return {reads: self._remembered(reads) for reads in RowSelection}

    def _remembered(self, reads: RowSelection) -> RememberedSignals:
        rules = [rule for rule in self.over_signals if rule.reads is reads]
        parts = [part for rule in rules for part in comparisons_of(rule.when)]
        return RememberedSignals(
            windows=tuple(sorted({part.signal for part in parts if part.measure.over})),
            baselines=tuple(sorted({part.signal for part in parts if part.measure.kind == "zscore"})),
        )


def condition_in_words(when: object, depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the lines of a condition, each with its depth: parts of `any of` and `all of` are one deeper."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            yield depth, f"{'any' if isinstance(when, AnyOf) else 'all'} of"
            for part in parts:
                yield from condition_in_words(part, depth + 1)
        case Comparison():
            label = when.measure.label(when.signal)
            subject = (
                f"`{label}`" if when.away_from is None else f"the distance between `{label}` and {when.away_from:g}"
            )
            clear = "" if when.clear == when.threshold else f"; once it fires, {when.bound.value} {when.clear:g}"
            yield depth, f"{subject} is {when.bound.value} {when.threshold:g}{clear}"
        case SignalAbsent(signal):
            yield depth, f"`{signal}` is not known"
        case FindingStands(finding):
            yield depth, "any of"
            yield from ((depth + 1, line_of_clause(clause, finding.severity)) for clause in finding.clauses)
        case InState(state):
            yield depth, f"the run is {state.value}"
        case TwoTrainersLive(seconds):
            yield depth, f"two launches of one rank have both sent heartbeats for over {seconds:g} s"
        case _:
            raise TypeError(f"no words for {when}")


def line_of_clause(clause: Clause, severity: Severity) -> str:
    """Return a clause of a finding with its name, which rules files use. Args: severity: of its finding."""
    of_clause = severity_words(clause)
    return f"`{clause.id}`: {clause_words(clause)}" + (f" ({of_clause})" if of_clause != severity.value else "")


def terms_in_words(rule: Rule) -> Iterator[str]:
    """Yield the severity of a rule, which rows it reads, and for how many steps its condition must hold."""
    enforcing = rule.severity_when_enforcing
    yield f"severity: {rule.severity.value}" + (f", {enforcing.value} in `enforce`" if enforcing else "")
    if rule.is_finding:
        yield f"once it stands, its limits are relaxed by a fifth; it ends after {CLEAR_ROWS} rows in which none holds"
        if rule.immune_steps:
            yield f"no alert is sent in the first {rule.immune_steps} steps of a run"
    if not rule.reads_batches:
        return
    yield f"reads {'every update' if rule.reads is RowSelection.EVERY_UPDATE else 'the gauge row'} of a step"
    yield f"fires after {_steps(rule.for_steps)}, resolves after {_steps(rule.clear_for_steps)}"
    if rule.immune_steps:
        yield f"does not fire in the first {rule.immune_steps} steps of a run"


def _steps(n: int) -> str:
    return "one step" if n == 1 else f"{n} steps in a row"

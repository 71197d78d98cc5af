"""Totals of a backtest: collapses found, lead times and false alarms over all runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec

from trmon.domain.backtest.evaluation import OnsetSource, RunBacktest
from trmon.domain.backtest.rule_replay import RuleGap, RuleSetOutcome


class RuleDifferenceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """In how many runs one set, the other or both raise a rule, and how much earlier the first one does.

    `median_steps_earlier` is over the runs in which both raise it, below 0 if the first set is later; None without any.
    """

    rule: str
    n_only: int
    n_only_against: int
    n_both: int
    median_steps_earlier: float | None


class DetectionTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How often runs are alarmed, each by its first alarm.

    `n_found` of the runs that collapse, `n_before` of them before the onset, by `median_lead_steps`; `n_others` of the
    runs that do not collapse.
    """

    n_found: int
    n_before: int
    median_lead_steps: float | None
    n_others: int


class RuleSetTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A rule set over all runs: by any alarm, by pages alone, and the pages of runs that do not collapse.

    `false_pages_per_day` is over the runs whose rows have a clock, None without any.
    """

    rules: str
    alarms: DetectionTotals
    pages: DetectionTotals
    n_false_pages: int
    false_pages_per_day: float | None
    false_pages_per_1000_steps: float | None


class GapTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that could not be evaluated, and in how many runs."""

    rules: str
    gap: RuleGap
    n_runs: int


class PolicyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The share of all stored sequences that a policy would have masked, over the runs that store any."""

    policy: str
    n_runs: int
    n_skipped: int
    n_sequences: int
    mask_rate: float | None


class BacktestTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a backtest; `n_unknown` are too short, or have no reward to show whether they collapse."""

    n_runs: int
    n_steps: int
    n_collapsed: int
    n_others: int
    n_unknown: int
    rule_sets: tuple[RuleSetTotals, ...]
    differences: tuple[RuleDifferenceTotals, ...]
    gaps: tuple[GapTotals, ...]
    policies: tuple[PolicyTotals, ...]


class BacktestSum:
    """Adds up runs; it keeps two lead times for each run that collapses."""

    def __init__(self) -> None:
        self._n_runs = self._n_steps = self._n_collapsed = self._n_others = 0
        self._rule_sets: dict[str, _RuleSetSum] = {}
        self._first_steps: defaultdict[str, list[tuple[int | None, int | None]]] = defaultdict(list)
        self._gaps: Counter[tuple[str, RuleGap]] = Counter()
        self._policies: dict[str, _PolicySum] = {}

    def add(self, run: RunBacktest) -> None:
        """Add a run."""
        self._n_runs += 1
        self._n_steps += run.n_steps
        self._n_collapsed += run.onset.step is not None
        self._n_others += _is_other(run)
        for outcome in run.outcomes:
            self._rule_sets.setdefault(outcome.rules, _RuleSetSum()).add(outcome, run)
            self._gaps.update((outcome.rules, gap) for gap in outcome.gaps)
        if len(run.outcomes) > 1:
            first, second = (outcome.first_steps for outcome in run.outcomes[:2])
            for rule in first.keys() | second.keys():
                self._first_steps[rule].append((first.get(rule), second.get(rule)))
        for policy in run.policies:
            counts = self._policies.setdefault(policy.policy, _PolicySum())
            counts.n_runs += not policy.skipped
            counts.n_skipped += bool(policy.skipped)
            counts.n_sequences += policy.n_sequences
            counts.n_masked += policy.n_sequences * policy.mask_rate if policy.n_sequences else 0.0

    def totals(self) -> BacktestTotals:
        """Return the totals of the runs so far."""
        gaps = sorted(self._gaps.items(), key=lambda item: (item[0][0], item[0][1].rule))
        return BacktestTotals(
            n_runs=self._n_runs,
            n_steps=self._n_steps,
            n_collapsed=self._n_collapsed,
            n_others=self._n_others,
            n_unknown=self._n_runs - self._n_collapsed - self._n_others,
            rule_sets=tuple(counts.totals(rules) for rules, counts in self._rule_sets.items()),
            differences=tuple(_difference(rule, self._first_steps[rule]) for rule in sorted(self._first_steps)),
            gaps=tuple(GapTotals(rules=rules, gap=gap, n_runs=n) for (rules, gap), n in gaps),
            policies=tuple(counts.totals(policy) for policy, counts in self._policies.items()),
        )


def _difference(rule: str, first_steps: Sequence[tuple[int | None, int | None]]) -> RuleDifferenceTotals:
    earlier = [other - step for step, other in first_steps if step is not None and other is not None]
    return RuleDifferenceTotals(
        rule=rule,
        n_only=sum(other is None for _, other in first_steps),
        n_only_against=sum(step is None for step, _ in first_steps),
        n_both=len(earlier),
        median_steps_earlier=median(earlier) if earlier else None,
    )


@dataclass(slots=True)
class _DetectionSum:
    n_found: int = 0
    n_others: int = 0
    leads: list[int] = field(default_factory=list)

    def add(self, first_step: int | None, run: RunBacktest) -> None:
        if first_step is None:
            return
        if run.onset.step is None:
            self.n_others += _is_other(run)
            return
        self.n_found += 1
        if first_step < run.onset.step:
            self.leads.append(run.onset.step - first_step)

    def totals(self) -> DetectionTotals:
        return DetectionTotals(
            n_found=self.n_found,
            n_before=len(self.leads),
            median_lead_steps=median(self.leads) if self.leads else None,
            n_others=self.n_others,
        )


@dataclass(slots=True)
class _RuleSetSum:
    alarms: _DetectionSum = field(default_factory=_DetectionSum)
    pages: _DetectionSum = field(default_factory=_DetectionSum)
    n_false_pages: int = 0
    n_steps: int = 0
    n_timed_pages: int = 0
    days: float = 0.0

    def add(self, outcome: RuleSetOutcome, run: RunBacktest) -> None:
        self.alarms.add(outcome.first_alarm, run)
        self.pages.add(outcome.first_page, run)
        if _is_other(run):
            self.n_false_pages += outcome.n_pages
            self.n_steps += run.n_steps
            if run.days is not None:
                self.n_timed_pages += outcome.n_pages
                self.days += run.days

    def totals(self, rules: str) -> RuleSetTotals:
        return RuleSetTotals(
            rules=rules,
            alarms=self.alarms.totals(),
            pages=self.pages.totals(),
            n_false_pages=self.n_false_pages,
            false_pages_per_day=self.n_timed_pages / self.days if self.days else None,
            false_pages_per_1000_steps=1_000 * self.n_false_pages / self.n_steps if self.n_steps else None,
        )


@dataclass(slots=True)
class _PolicySum:
    n_runs: int = 0
    n_skipped: int = 0
    n_sequences: int = 0
    n_masked: float = 0.0

    def totals(self, policy: str) -> PolicyTotals:
        return PolicyTotals(
            policy=policy,
            n_runs=self.n_runs,
            n_skipped=self.n_skipped,
            n_sequences=self.n_sequences,
            mask_rate=self.n_masked / self.n_sequences if self.n_sequences else None,
        )


def _is_other(run: RunBacktest) -> bool:
    """Whether a run is known not to collapse."""
    return run.onset.step is None and run.onset.source is not OnsetSource.UNKNOWN

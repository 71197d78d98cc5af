"""Totals of a backtest: collapses found, lead times and false alarms over all runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import TypeAlias

import msgspec
from msgspec import structs

from trmon.domain.backtest.evaluation import OnsetSource, PolicyMaskRate, RunBacktest
from trmon.domain.backtest.rule_replay import RuleSetOutcome


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
    policies: tuple[PolicyTotals, ...]


class BacktestSum:
    """Adds up runs, of which it keeps all but their alerts."""

    def __init__(self) -> None:
        self._runs: list[RunBacktest] = []

    def add(self, run: RunBacktest) -> None:
        """Add a run."""
        outcomes = tuple(structs.replace(outcome, alerts=()) for outcome in run.outcomes)
        self._runs.append(structs.replace(run, outcomes=outcomes))

    def totals(self) -> BacktestTotals:
        """Return the totals of the runs so far."""
        outcomes: defaultdict[str, list[_OfRun]] = defaultdict(list)
        policies: defaultdict[str, list[PolicyMaskRate]] = defaultdict(list)
        for run in self._runs:
            for outcome in run.outcomes:
                outcomes[outcome.rules].append((outcome, run))
            for policy in run.policies:
                policies[policy.policy].append(policy)
        n_collapsed = sum(run.onset.step is not None for run in self._runs)
        n_others = sum(map(_is_other, self._runs))
        return BacktestTotals(
            n_runs=len(self._runs),
            n_steps=sum(run.n_steps for run in self._runs),
            n_collapsed=n_collapsed,
            n_others=n_others,
            n_unknown=len(self._runs) - n_collapsed - n_others,
            rule_sets=tuple(_rule_set(rules, found) for rules, found in outcomes.items()),
            differences=tuple(_differences(self._runs)),
            policies=tuple(_policy(policy, rates) for policy, rates in policies.items()),
        )


_OfRun: TypeAlias = tuple[RuleSetOutcome, RunBacktest]


def _rule_set(rules: str, found: Sequence[_OfRun]) -> RuleSetTotals:
    others = [(outcome, run) for outcome, run in found if _is_other(run)]
    timed = [(outcome.n_pages, run.days) for outcome, run in others if run.days is not None]
    days = sum(days for _, days in timed)
    return RuleSetTotals(
        rules=rules,
        alarms=_detection((outcome.first_alarm, run) for outcome, run in found),
        pages=_detection((outcome.first_page, run) for outcome, run in found),
        n_false_pages=sum(outcome.n_pages for outcome, _ in others),
        false_pages_per_day=sum(n_pages for n_pages, _ in timed) / days if days else None,
    )


def _detection(first_steps: Iterable[tuple[int | None, RunBacktest]]) -> DetectionTotals:
    alarmed = [(step, run) for step, run in first_steps if step is not None]
    ahead = [run.onset.step - step for step, run in alarmed if run.onset.step is not None]
    leads = [n_steps for n_steps in ahead if n_steps > 0]
    return DetectionTotals(
        n_found=len(ahead),
        n_before=len(leads),
        median_lead_steps=median(leads) if leads else None,
        n_others=sum(_is_other(run) for _, run in alarmed),
    )


def _differences(runs: Iterable[RunBacktest]) -> Iterator[RuleDifferenceTotals]:
    first_steps: defaultdict[str, list[tuple[int | None, int | None]]] = defaultdict(list)
    for run in runs:
        if len(run.outcomes) > 1:
            first, second = (outcome.first_steps for outcome in run.outcomes[:2])
            for rule in first.keys() | second.keys():
                first_steps[rule].append((first.get(rule), second.get(rule)))
    for rule, steps in sorted(first_steps.items()):
        earlier = [other - step for step, other in steps if step is not None and other is not None]
        yield RuleDifferenceTotals(
            rule=rule,
            n_only=sum(other is None for _, other in steps),
            n_only_against=sum(step is None for step, _ in steps),
            n_both=len(earlier),
            median_steps_earlier=median(earlier) if earlier else None,
        )


def _policy(policy: str, rates: Sequence[PolicyMaskRate]) -> PolicyTotals:
    n_sequences = sum(rate.n_sequences for rate in rates)
    n_masked = sum(rate.n_sequences * rate.mask_rate for rate in rates if rate.n_sequences)
    return PolicyTotals(
        policy=policy,
        n_runs=sum(not rate.skipped for rate in rates),
        n_skipped=sum(bool(rate.skipped) for rate in rates),
        n_sequences=n_sequences,
        mask_rate=n_masked / n_sequences if n_sequences else None,
    )


def _is_other(run: RunBacktest) -> bool:
    """Whether a run is known not to collapse."""
    return run.onset.step is None and run.onset.source is not OnsetSource.UNKNOWN

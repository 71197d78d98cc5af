"""Backtest of one run: its rows are read once, and every rule set is evaluated over each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

import msgspec

from trmon.domain.analysis.collapse import SPAN, WITHIN, CollapseSearch
from trmon.domain.backtest.rule_replay import BacktestAlert, RaisedAlerts, RaisedTransition, RuleReplay
from trmon.domain.backtest.stored_history import (
    PolicyMaskRate,
    RuleGap,
    RuleGapSearch,
    StoredHistory,
    split_rules,
)
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.framework_names.translation import canonical_value
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.rules.rule import RuleSet
from trmon_client.core.policies.policy import Policy


class RuleDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that two sets raise at different steps of a run, first; None if a set does not raise it."""

    rule: str
    step: int | None
    against_step: int | None


class RuleDifferenceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """In how many runs one set, the other or both raise a rule, and how much earlier the first one does.

    `median_steps_earlier` is over the runs in which both raise it, below 0 if the first set is later; None without any.
    """

    rule: str
    n_only: int
    n_only_against: int
    n_both: int
    median_steps_earlier: float | None


def rule_differences(outcome: RuleSetOutcome, against: RuleSetOutcome) -> tuple[RuleDifference, ...]:
    """Return the rules that two sets do not first raise at the same step of a run, by name."""
    pairs = ((rule, outcome.first_steps.get(rule), against.first_steps.get(rule)) for rule in _names(outcome, against))
    return tuple(
        RuleDifference(rule=rule, step=step, against_step=other) for rule, step, other in pairs if step != other
    )


@dataclass(slots=True)
class _RuleCounts:
    n_only: int = 0
    n_only_against: int = 0
    earlier: list[int] = field(default_factory=list)


class RuleDifferenceSum:
    """Adds up the differences of two rule sets; it keeps a number for each rule that both raise in a run."""

    def __init__(self) -> None:
        self._counts: dict[str, _RuleCounts] = {}

    def add(self, outcome: RuleSetOutcome, against: RuleSetOutcome) -> None:
        """Add a run."""
        for rule in _names(outcome, against):
            counts = self._counts.setdefault(rule, _RuleCounts())
            step, other = outcome.first_steps.get(rule), against.first_steps.get(rule)
            if step is None:
                counts.n_only_against += 1
            elif other is None:
                counts.n_only += 1
            else:
                counts.earlier.append(other - step)

    def totals(self) -> Iterator[RuleDifferenceTotals]:
        """Yield the sums, by rule, of the rules that any of the two raises."""
        for rule, counts in sorted(self._counts.items()):
            yield RuleDifferenceTotals(
                rule=rule,
                n_only=counts.n_only,
                n_only_against=counts.n_only_against,
                n_both=len(counts.earlier),
                median_steps_earlier=median(counts.earlier) if counts.earlier else None,
            )


def _names(outcome: RuleSetOutcome, against: RuleSetOutcome) -> list[str]:
    return sorted({*outcome.first_steps, *against.first_steps})


class OnsetSource(Enum):
    """Where an onset comes from; without a label and a reward, it is unknown whether a run collapses."""

    LABEL = "label"
    REWARD = "reward"
    UNKNOWN = "unknown"


class CollapseOnset(msgspec.Struct, frozen=True, kw_only=True):
    """The step at which a run's collapse begins, None without one, and where that comes from."""

    step: int | None
    source: OnsetSource
    reason: str = ""


class OnsetSearch:
    """Follows the reward of a run's steps, a step in memory for each of the 151 newest."""

    def __init__(self) -> None:
        self._search = CollapseSearch()
        self._newest: tuple[int, float, float] | None = None
        self._n_rewards = 0
        self._has_negative = False

    def add(self, closing: ClosingRow) -> None:
        """Add a row; of a step its last gauge row counts."""
        if not closing.folded or not closing.is_gauge:
            return
        if closing.began_step:
            self._pass_on()
        row = closing.row
        reward = canonical_value("reward_mean", signals=row.signals, scalars=row.scalars)
        grad_norm = canonical_value("grad_norm", signals=row.signals, scalars=row.scalars)
        self._newest = (row.key.step, reward, grad_norm)

    def onset(self) -> CollapseOnset:
        """Return the onset after the last row."""
        self._pass_on()
        if self._has_negative:
            return CollapseOnset(step=None, source=OnsetSource.UNKNOWN, reason="some rewards are below 0")
        if self._search.found is not None:
            return CollapseOnset(step=self._search.found.step, source=OnsetSource.REWARD)
        if self._n_rewards < SPAN + WITHIN:
            reason = f"{self._n_rewards} of the {SPAN + WITHIN} rewards that a collapse takes to show"
            return CollapseOnset(step=None, source=OnsetSource.UNKNOWN, reason=reason)
        return CollapseOnset(step=None, source=OnsetSource.REWARD)

    def _pass_on(self) -> None:
        if self._newest is None:
            return
        step, reward, grad_norm = self._newest
        self._newest = None
        self._n_rewards += not math.isnan(reward)
        self._has_negative |= reward < 0
        self._search.add(step, reward if math.isfinite(reward) else math.nan, grad_norm=grad_norm)


DAY_SECONDS = 86_400.0


class RunBacktest(msgspec.Struct, frozen=True, kw_only=True):
    """A run, its collapse, and what each rule set raises over it; `days` by the trainer's clock, None without one.

    `differences` are those of the first two rule sets.
    """

    run: str
    n_steps: int
    days: float | None
    onset: CollapseOnset
    outcomes: tuple[RuleSetOutcome, ...]
    differences: tuple[RuleDifference, ...]
    policies: tuple[PolicyMaskRate, ...]


def backtest_run(
    history: StoredHistory,
    rule_sets: Mapping[str, RuleSet],
    *,
    policies: Sequence[Policy] = (),
    model: RiskModel | None = None,
) -> RunBacktest:
    """Return what rule sets would have raised over a stored run, and what policies would have masked.

    Args: rule_sets: at least one, by name; model: predicts the risk of a collapse in place of the shipped model.
    """
    evaluations = [_Evaluation(name, rules, history, model=model) for name, rules in rule_sets.items()]
    onset, n_steps, seconds = OnsetSearch(), 0, 0.0
    for row in history.rows():
        replayed = [evaluation.add(row) for evaluation in evaluations]
        onset.add(replayed[0])
        if replayed[0].folded and replayed[0].began_step:
            n_steps += 1
            step_seconds = replayed[0].row.signals.get("step_seconds", math.nan)
            seconds += step_seconds if step_seconds > 0 else 0.0
    found = onset.onset()
    outcomes = tuple(evaluation.outcome(found) for evaluation in evaluations)
    return RunBacktest(
        run=history.name,
        n_steps=n_steps,
        days=seconds / DAY_SECONDS if seconds else None,
        onset=found,
        outcomes=outcomes,
        differences=rule_differences(*outcomes[:2]) if len(outcomes) > 1 else (),
        policies=tuple(history.apply_policy(policy) for policy in policies),
    )


class _Evaluation:
    """One rule set over one run."""

    def __init__(self, name: str, rules: RuleSet, history: StoredHistory, *, model: RiskModel | None) -> None:
        self._name = name
        evaluated, self._gaps = split_rules(rules)
        self._replay = RuleReplay(evaluated, history.run, model=model)
        self._search = RuleGapSearch(evaluated)
        self._raised = RaisedAlerts(evaluated)
        self._newest: BatchRow | None = None

    def add(self, row: BatchRow) -> ClosingRow:
        closing = self._replay.add(row)
        self._search.add(closing, stored=row)
        self._newest = row
        self._add_raised(self._replay.raised(closing.transitions), row)
        return closing

    def outcome(self, onset: CollapseOnset) -> RuleSetOutcome:
        raised, newest = self._raised, self._newest
        if newest is not None:
            self._add_raised(self._replay.finish(now=newest.closed_at), newest)
        return RuleSetOutcome(
            rules=self._name,
            n_raised=raised.n_raised,
            n_sent=raised.n_sent,
            n_pages=raised.n_pages,
            first_alarm=raised.first_alarm,
            first_page=raised.first_page,
            first_steps=raised.first_steps,
            alerts=raised.with_leads(onset.step),
            gaps=(*self._gaps, *self._search.gaps()),
        )

    def _add_raised(self, transitions: Sequence[RaisedTransition], row: BatchRow) -> None:
        self._raised.add(transitions, step=row.key.step, at=row.closed_at)


class RuleSetOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts that one rule set raises over a run.

    `n_raised` alerts fire and incidents open or change, of which `n_sent` notify and `n_pages` notify as a page.
    `first_alarm` and `first_page` are steps; `first_steps` the first step of each rule. `alerts` are the first 200.
    """

    rules: str
    n_raised: int
    n_sent: int
    n_pages: int
    first_alarm: int | None
    first_page: int | None
    first_steps: dict[str, int]
    alerts: tuple[BacktestAlert, ...]
    gaps: tuple[RuleGap, ...]

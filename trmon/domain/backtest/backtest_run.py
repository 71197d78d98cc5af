"""Backtest of one run: its rows are read once, and every rule set is evaluated over each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from trmon.domain.backtest.collapse_onset import CollapseOnset, OnsetSearch
from trmon.domain.backtest.policy_mask_rate import PolicyMaskRate
from trmon.domain.backtest.raised_alerts import RaisedAlerts
from trmon.domain.backtest.rule_differences import RuleDifference, rule_differences
from trmon.domain.backtest.rule_gaps import RuleGapSearch, split_rules
from trmon.domain.backtest.rule_replay import RaisedTransition, ReplayedRow, RuleReplay
from trmon.domain.backtest.rule_set_outcome import RuleSetOutcome
from trmon.domain.backtest.stored_history import StoredHistory
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon.domain.rules.rule_set import RuleSet
from trmon_client.core.policies.policy import Policy

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
        folded = replayed[0].folded
        onset.add(folded)
        if folded.folded and folded.began_step:
            n_steps += 1
            step_seconds = folded.row.signals.get("step_seconds", math.nan)
            seconds += step_seconds if step_seconds > 0 else 0.0
    found = onset.onset(history.label)
    outcomes = tuple(evaluation.outcome(found) for evaluation in evaluations)
    return RunBacktest(
        run=history.name,
        n_steps=n_steps,
        days=seconds / DAY_SECONDS if seconds and history.has_times else None,
        onset=found,
        outcomes=outcomes,
        differences=rule_differences(*outcomes[:2]) if len(outcomes) > 1 else (),
        policies=tuple(history.apply_policy(policy) for policy in policies),
    )


class _Evaluation:
    """One rule set over one run."""

    def __init__(self, name: str, rules: RuleSet, history: StoredHistory, *, model: RiskModel | None) -> None:
        self._name = name
        self._has_times = history.has_times
        evaluated, self._gaps = split_rules(rules, history)
        self._replay = RuleReplay(evaluated, history.run, model=model)
        self._search = RuleGapSearch(evaluated, held_signals=history.held_signals)
        self._raised = RaisedAlerts(evaluated)
        self._newest: BatchRow | None = None

    def add(self, row: BatchRow) -> ReplayedRow:
        replayed = self._replay.add(row)
        self._search.add(replayed)
        self._newest = row
        self._add_raised(replayed.transitions, row)
        return replayed

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
        self._raised.add(transitions, step=row.key.step, at=row.closed_at if self._has_times else None)

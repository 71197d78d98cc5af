"""The backtest of a run of a sweep: a label says when it collapses, and its rows have no clock."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from trmon.cli.backtest import Backtest
from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RunBacktest
from trmon.domain.backtest.rule_replay import RuleSetOutcome
from trmon.domain.rules.rule import RuleSet
from trmon_research.sweep.swept_history import SweptHistory


def backtest_swept(swept: SweptHistory, backtest: Backtest) -> RunBacktest:
    """Return what rule sets would have raised; rules over durations are not evaluated."""
    timeless = {name: _timeless(rules) for name, rules in backtest.rule_sets.items()}
    found = replace(backtest, rule_sets=timeless).of_history(swept.history)
    return structs.replace(
        found,
        days=None,
        onset=CollapseOnset(step=swept.onset, source=OnsetSource.LABEL),
        outcomes=tuple(_labelled(outcome, swept) for outcome in found.outcomes),
    )


def _timeless(rules: RuleSet) -> RuleSet:
    return replace(rules, others=tuple(rule for rule in rules.others if rule.for_seconds <= 0))


def _labelled(outcome: RuleSetOutcome, swept: SweptHistory) -> RuleSetOutcome:
    """Return an outcome with the leads to the label, without times."""
    alerts = tuple(
        structs.replace(alert, at=None, lead_steps=None if swept.onset is None else swept.onset - alert.step)
        for alert in outcome.alerts
    )
    return structs.replace(outcome, alerts=alerts)

"""The backtest of a run of a sweep: a label says when it collapses, and its rows lack a clock and some signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec import structs

from trmon.cli.backtest import Backtest
from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RuleSetOutcome, RunBacktest
from trmon.domain.backtest.stored_history import RUN_STATES, RuleGap, absences_of
from trmon.domain.rules.condition import signals_of
from trmon.domain.rules.rule import Rule, RuleSet
from trmon.domain.signals.reward_history import LOWER_ATOMS
from trmon_client.core.column_schema import PAIRS
from trmon_research.sweep.swept_history import SweptHistory

FEATURE_INPUTS: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("reward_collapse", "reward_decline"), frozenset(name for name, _ in LOWER_ATOMS)
)
"""Signals without which a historical signal is computed less exactly than the service computes it."""

REPLAYED_FROM: Mapping[str, str] = {
    **dict.fromkeys(("reward_ema", "reward_peak", "reward_collapse", "reward_decline"), "reward_mean"),
    **dict.fromkeys(("entropy_relative", "entropy_rise"), "sampled_entropy"),
    **dict.fromkeys(("length_limit_ema", "length_limit_rise"), "length_limit_share"),
    "effective_signal_relative": "effective_signal",
    "router_flip_relative": "router_flip_rate",
}
"""Historical signals that a replay computes from one signal: where that is held, their absence is known."""
TIMES = "the time of each step"


def backtest_swept(swept: SweptHistory, backtest: Backtest) -> RunBacktest:
    """Return what rule sets would have raised; those that the file cannot decide are not evaluated."""
    needs = {name: _needs_of(rules, swept) for name, rules in backtest.rule_sets.items()}
    decidable = {
        name: RuleSet(tuple(rule for rule in rules.rules if rule.name not in needs[name]))
        for name, rules in backtest.rule_sets.items()
    }
    found = replace(backtest, rule_sets=decidable).of_history(swept.history)
    return structs.replace(
        found,
        days=None,
        onset=CollapseOnset(step=swept.onset, source=OnsetSource.LABEL),
        outcomes=tuple(
            _labelled(outcome, swept, rules=decidable[outcome.rules], needs=needs[outcome.rules])
            for outcome in found.outcomes
        ),
    )


def _labelled(
    outcome: RuleSetOutcome, swept: SweptHistory, *, rules: RuleSet, needs: Mapping[str, tuple[str, ...]]
) -> RuleSetOutcome:
    """Return an outcome with the leads to the label, without times, and with what the file lacks."""
    undecided = tuple(RuleGap(rule=rule, needs=lacking) for rule, lacking in needs.items())
    alerts = tuple(
        structs.replace(alert, at=None, lead_steps=None if swept.onset is None else swept.onset - alert.step)
        for alert in outcome.alerts
    )
    return structs.replace(outcome, alerts=alerts, gaps=(*undecided, *_gaps(outcome, rules, swept)))


def _gaps(outcome: RuleSetOutcome, rules: RuleSet, swept: SweptHistory) -> Iterator[RuleGap]:
    """Yield the gaps of an outcome and, in the order of the rules, those of inputs that the file lacks."""
    known = {gap.rule: gap for gap in outcome.gaps}
    for rule in rules.over_signals:
        gap = known.get(rule.name)
        inputs = [FEATURE_INPUTS.get(name, frozenset()) for name in signals_of(rule.when)]
        lacking = frozenset().union(*inputs) - swept.held_signals
        if lacking and (gap is None or gap.in_part):
            needs = tuple(sorted(lacking.union(gap.needs if gap else ())))
            yield RuleGap(rule=rule.name, needs=needs, in_part=True)
        elif gap is not None:
            yield gap


def _needs_of(rules: RuleSet, swept: SweptHistory) -> dict[str, tuple[str, ...]]:
    found = {rule.name: _needs(rule, swept.held_signals) for rule in rules.rules}
    return {name: needs for name, needs in found.items() if needs}


def _needs(rule: Rule, held: frozenset[str]) -> tuple[str, ...]:
    """Return what a rule needs that no row of a sweep can have."""
    if not rule.reads_batches:
        return (RUN_STATES,)
    if rule.for_seconds > 0:
        return (TIMES,)
    return tuple(f"to know whether {name} is sent" for name in absences_of(rule.when) if not _is_held(name, held))


def _is_held(name: str, held: frozenset[str]) -> bool:
    name = REPLAYED_FROM.get(name, name)
    return not held.isdisjoint((name, *(f"{pair}_{name}" for pair in PAIRS)))

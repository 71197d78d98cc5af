"""What a backtest of a run of a sweep takes from its label, and which rules its rows cannot decide."""

from __future__ import annotations

from tests.domain.backtest.histories import history, rewards
from trmon.cli.backtest import Backtest
from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RunBacktest
from trmon.domain.rules.rule import RuleSet
from trmon.domain.rules.rule_yaml import parse_rules
from trmon_research.sweep.swept_backtest import backtest_swept
from trmon_research.sweep.swept_history import SweptHistory

QUIET_STEPS = [{"kl_k3": 0.0}] * 10


def backtest(
    steps: list[dict[str, float]], when: str, *, held: str, onset: int | None = None, more: str = ""
) -> RunBacktest:
    rule = f"[{{name: mine, severity: page, summary: s, immune_steps: 0, when: {when}{more}}}]"
    swept = SweptHistory(history=history(steps), held_signals=frozenset({held}), onset=onset)
    return backtest_swept(swept, Backtest({"0": RuleSet(parse_rules(rule))}, (), None))


def gaps(when: str, *, steps: list[dict[str, float]] = QUIET_STEPS, held: str = "kl_k3", more: str = "") -> list[str]:
    return [str(gap) for gap in backtest(steps, when, held=held, more=more).outcomes[0].gaps]


def test_the_label_says_when_the_run_collapses() -> None:
    found = backtest([*QUIET_STEPS, {"kl_k3": 2.0}], "{signal: kl_k3, above: 1}", held="kl_k3", onset=25)
    [alert] = found.outcomes[0].alerts
    assert (found.onset, found.days) == (CollapseOnset(step=25, source=OnsetSource.LABEL), None)
    assert (alert.step, alert.lead_steps, alert.at) == (10, 15, None)


def test_what_rows_of_a_sweep_cannot_tell_is_not_evaluated() -> None:
    assert gaps("{signal: kl_k3, below: 1}", more=", for_seconds: 5") == [
        "mine could not be evaluated: needs the time of each step"
    ]
    assert gaps("{absent: tv}") == ["mine could not be evaluated: needs to know whether tv is sent"]
    assert gaps("{absent: kl_k3}") == []
    of_rewards = rewards(0.5, 0.5)
    assert gaps("{absent: reward_peak}", steps=of_rewards, held="reward_mean") == []
    assert gaps("{absent: kl_k3_ema}", steps=of_rewards, held="reward_mean") == [
        "mine could not be evaluated: needs to know whether kl_k3_ema is sent"
    ]
    [stalled] = gaps("{state: stalled}")
    assert "heartbeats" in stalled


def test_a_signal_that_is_computed_from_more_than_the_file_holds_is_named() -> None:
    falling = rewards(*[0.5] * 40)
    [gap] = gaps("{signal: reward_collapse, above: 1}", steps=falling, held="reward_mean")
    assert gap.startswith("mine was evaluated in part: lacks reward_median, reward_min")

"""What a backtest of a run of a sweep takes from its label, and what its rows cannot decide."""

from __future__ import annotations

from tests.domain.backtest.histories import history
from tests.domain.pipeline.closings import parse_rules
from trmon.cli.backtest import Backtest
from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RunBacktest
from trmon_research.sweep.swept_backtest import backtest_swept
from trmon_research.sweep.swept_history import SweptHistory

QUIET_STEPS = [{"kl_k3": 0.0}] * 10


def backtest(steps: list[dict[str, float]], when: str, *, onset: int | None = None, more: str = "") -> RunBacktest:
    rule = f"[{{name: mine, severity: page, summary: s, immune_steps: 0, when: {when}{more}}}]"
    swept = SweptHistory(history=history(steps), onset=onset)
    return backtest_swept(swept, Backtest({"0": parse_rules(rule)}, (), None))


def test_the_label_says_when_the_run_collapses() -> None:
    found = backtest([*QUIET_STEPS, {"kl_k3": 2.0}], "{signal: kl_k3, above: 1}", onset=25)
    [alert] = [each for each in found.outcomes[0].alerts if each.rule == "mine"]
    assert (found.onset, found.days) == (CollapseOnset(step=25, source=OnsetSource.LABEL), None)
    assert (alert.step, alert.lead_steps, alert.at) == (10, 15, None)


def test_what_rows_of_a_sweep_cannot_tell_is_not_evaluated() -> None:
    found = backtest([{"kl_k3": 2.0}] * 10, "{signal: kl_k3, above: 1}", more=", for_seconds: 5").outcomes[0]
    assert found.alerts == ()

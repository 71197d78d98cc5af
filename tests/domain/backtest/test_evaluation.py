"""What a backtest finds in one run, and its totals over many."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from tests.domain.backtest.histories import RISE, history, rewards
from tests.domain.pipeline.closings import parse_rules
from tests.fixtures.command import run_python
from tests.store.builders import batch
from trmon.domain.backtest.evaluation import CollapseOnset, OnsetSource, RunBacktest, StoredHistory, backtest_run
from trmon.domain.backtest.rule_replay import MAX_ALERTS
from trmon.domain.backtest.totals import BacktestSum, DetectionTotals
from trmon.domain.batches.batch import BatchRow
from trmon.domain.collapse_risk.risk_model import RiskCalibration, RiskModel, shipped_model
from trmon.domain.identity import BatchKey
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon.domain.runs.run import RunState
from trmon_client.core.policies.policy import preset

FALL = [*RISE, *[0.2] * 150]
HIGH = "[{name: high, severity: page, summary: 'at {value}', immune_steps: 0, when: {signal: kl_k3, above: 1}}]"
GROWTH = "[{name: growing, severity: warn, summary: s, when: {growth: kl_k3, over: 120, above: 9}}]"
"""A rule with as long a history as a rule may have."""
QUIET_STEPS = [{"kl_k3": 0.0}] * 10


def backtest(given: StoredHistory, rules: str = HIGH) -> RunBacktest:
    """Return a backtest of rules alone, without findings."""
    return backtest_run(given, {"mine": parse_rules(rules)})


def test_an_alert_has_its_step_its_time_and_its_lead_to_the_collapse() -> None:
    falling = rewards(*FALL)
    falling[10]["kl_k3"] = 2.0
    [alert] = backtest(history(falling)).outcomes[0].alerts
    assert (alert.rule, alert.severity.value, alert.step, alert.at, alert.lead_steps) == (
        "high",
        "page",
        10,
        1600.0,
        55,
    )
    assert (alert.is_sent, alert.is_alarm, alert.summary) == (True, True, "at 2")


def test_a_finding_that_waits_for_the_next_step_is_raised_by_that_step() -> None:
    rule = HIGH.replace("kl_k3", "grad_norm")
    [alert] = backtest(history([*QUIET_STEPS, {"grad_norm": 2.0}, {"grad_norm": 2.0}]), rule).outcomes[0].alerts
    assert (alert.since, alert.step) == (10, 11)


def test_alerts_of_health_are_told_by_their_incident() -> None:
    rule = HIGH.replace("name: high", "name: high, is_symptom: true")
    outcome = backtest(history([*QUIET_STEPS, {"kl_k3": 2.0}, *QUIET_STEPS]), rule).outcomes[0]
    assert [(alert.rule, alert.is_sent, alert.cause) for alert in outcome.alerts] == [
        ("high", False, ""),
        ("incident", True, "high"),
    ]
    assert (outcome.n_raised, outcome.n_sent, outcome.n_pages, outcome.first_page) == (2, 1, 1, 10)


def test_an_alert_of_how_reports_arrive_is_no_alarm() -> None:
    outcome = backtest(history([{"missing_ranks": 2.0}]), HIGH.replace("kl_k3", "missing_ranks")).outcomes[0]
    assert (outcome.n_sent, outcome.n_pages, outcome.first_alarm) == (1, 0, None)


def test_the_last_step_is_final_only_if_the_run_has_ended() -> None:
    rule = HIGH.replace("kl_k3", "grad_norm")
    running = history([{"grad_norm": 2.0}])
    ended = replace(running, run=replace(running.run, state=RunState.FINISHED))
    assert [backtest(given, rule).outcomes[0].n_raised for given in (running, ended)] == [0, 1]


TOO_SHORT = "90 of the 120 rewards that a collapse takes to show"
ONSETS = [
    ("the reward falls", history(rewards(*FALL)), 65, OnsetSource.REWARD, ""),
    ("it stays", history(rewards(*[0.5] * 130)), None, OnsetSource.REWARD, ""),
    ("too short", history(rewards(*[0.5] * 90)), None, OnsetSource.UNKNOWN, TOO_SHORT),
    ("below 0", history(rewards(*[-0.5] * 200)), None, OnsetSource.UNKNOWN, "some rewards are below 0"),
]


@pytest.mark.parametrize(("sentence", "given", "step", "source", "reason"), ONSETS, ids=[case[0] for case in ONSETS])
def test_the_onset(sentence: str, given: StoredHistory, step: int | None, source: OnsetSource, reason: str) -> None:
    assert backtest(given).onset == CollapseOnset(step=step, source=source, reason=reason)


DISAGREE = [*[{"mismatch_prob_pearson": 0.999}] * 30, *[{"mismatch_prob_pearson": 0.8}] * 30]


def test_findings_are_raised_by_the_limits_of_each_rule_set_and_told_by_their_incident() -> None:
    lax = overlay_rules(builtin_rules(), "[{name: engine_mismatch, limits: {pearson: 0.3, pearson_growth: 300}}]")
    found = backtest_run(history(DISAGREE), {"builtin": builtin_rules(), "lax": lax})
    builtin, other = found.outcomes
    assert [(alert.rule, alert.since, alert.step, alert.is_sent) for alert in builtin.alerts] == [
        ("engine_mismatch", 30, 35, False),
        ("incident", 30, 40, True),
    ]
    assert builtin.alerts[1].cause == "engine_mismatch"
    assert other.alerts == ()


def test_policies_are_asked_of_the_source() -> None:
    found = backtest_run(history(QUIET_STEPS), {"mine": parse_rules(HIGH)}, policies=[preset("geo_mask")])
    assert [(each.policy, each.skipped) for each in found.policies] == [("geo_mask", "no sequences are stored")]


def test_another_model_predicts_before_rules_read_the_risk() -> None:
    given = history([{"reward_mean": 0.5 + 0.01 * (step % 3), "reward_std": 0.3} for step in range(70)])
    rules = parse_rules(HIGH.replace("kl_k3, above: 1", "collapse_risk, above: 0.9"))
    certain = RiskModel(structs.replace(shipped_model().file, calibration=RiskCalibration(9.0, 0.0)))
    assert backtest_run(given, {"mine": rules}).outcomes[0].alerts == ()
    [alert] = backtest_run(given, {"mine": rules}, model=certain).outcomes[0].alerts
    assert (alert.since, alert.step) == (59, 60), "the first step at which it speaks, once its scalars are known"


def test_days_are_those_of_the_trainers_clock() -> None:
    assert backtest(history(QUIET_STEPS, step_seconds=8640.0)).days == 1.0
    assert backtest(history(QUIET_STEPS, step_seconds=None)).days is None


def flapping(n_steps: int) -> Callable[[], Iterator[BatchRow]]:
    """Return rows that fire and resolve an alert in every other step.

    Cycles are collected as they are read: what counts is what a backtest keeps, and not when the garbage is collected.
    """

    def rows() -> Iterator[BatchRow]:
        for step in range(n_steps):
            if step % 100 == 0:
                gc.collect()
            signals = {"kl_k3": 2.0 * (step % 2)}
            yield batch(BatchKey(1, step, None), run_id=1, ordinal=step + 1, signals=signals)

    return rows


def peak_bytes(n_runs: int, n_steps: int) -> int:
    """Return the peak memory of a backtest of runs that are made as they are read."""
    rules = overlay_rules(parse_rules(HIGH), GROWTH)
    given = replace(history([]), rows=flapping(n_steps))
    tracemalloc.start()
    summed = BacktestSum()
    for _ in range(n_runs):
        summed.add(backtest_run(given, {"mine": rules}))
    assert summed.totals().n_steps == n_runs * n_steps
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


PEAKS = """
from tests.domain.backtest.test_evaluation import peak_bytes
from trmon.domain.backtest import rule_replay

rule_replay.MAX_ALERTS = 100
peak_bytes(1, 200)  # fills what the process keeps, which would count as the first's peak
print(peak_bytes(1, 200), peak_bytes(3, 400))
"""


def test_memory_depends_neither_on_the_number_of_runs_nor_on_their_length() -> None:
    # In a process of its own: threads that other tests leave behind would count.
    few_and_short, many_and_long = map(int, run_python(PEAKS).stdout.split())
    # 1.06 times as much; 1.4 times if all alerts were kept.
    assert many_and_long < 1.25 * few_and_short


def test_alerts_beyond_the_listed_ones_are_counted() -> None:
    outcome = backtest(replace(history([]), rows=flapping(2 * MAX_ALERTS + 20))).outcomes[0]
    assert (outcome.n_raised, len(outcome.alerts)) == (MAX_ALERTS + 10, MAX_ALERTS)


RULES = """
- {name: high, severity: page, summary: s, immune_steps: 0, when: {signal: kl_k3, above: 1}}
- {name: some, severity: warn, summary: s, immune_steps: 0, when: {signal: kl_k3, above: 0.5}}
"""
STEADY = [0.5] * 200
FALLING = FALL[:200]
ONSET = 65


def steps(values: list[float], **kl: float) -> list[dict[str, float]]:
    """Return steps with these rewards, and at the named ones (at_10=2.0) with a KL."""
    found = [{**signals, "kl_k3": 0.0} for signals in rewards(*values)]
    for name, value in kl.items():
        found[int(name.removeprefix("at_"))]["kl_k3"] = value
    return found


def test_collapses_found_leads_and_false_pages() -> None:
    summed, rules = BacktestSum(), parse_rules(RULES)
    runs = [
        history(steps(FALLING, at_15=2.0)),
        history(steps(FALLING, at_45=0.7, at_90=2.0)),
        history(steps(FALLING)),
        history(steps(STEADY, at_10=2.0, at_30=2.0), step_seconds=432.0),
        history(steps(STEADY, at_10=0.7), step_seconds=None),
        history(steps([0.5] * 50, at_10=2.0)),
    ]
    for run in runs:
        summed.add(backtest_run(run, {"mine": rules}))
    totals = summed.totals()
    counts = (totals.n_runs, totals.n_steps, totals.n_collapsed, totals.n_others, totals.n_unknown)
    assert counts == (6, 3 * 200 + 2 * 200 + 50, 3, 2, 1)
    [mine] = totals.rule_sets
    assert mine.alarms == DetectionTotals(n_found=2, n_before=2, median_lead_steps=(50 + 20) / 2, n_others=2)
    assert mine.pages == DetectionTotals(n_found=2, n_before=1, median_lead_steps=ONSET - 15, n_others=1)
    assert (mine.n_false_pages, mine.false_pages_per_day) == (2, 2.0)


def test_no_runs_have_no_rates() -> None:
    totals = BacktestSum().totals()
    assert (totals.n_runs, totals.rule_sets) == (0, ())


def test_differences_are_counted_by_runs() -> None:
    summed = BacktestSum()
    strict, lax = parse_rules(RULES), parse_rules(RULES.replace("above: 1", "above: 3"))
    for kl in ({"at_10": 2.0}, {"at_10": 2.0, "at_14": 4.0}, {"at_10": 4.0}):
        summed.add(backtest_run(history(steps(STEADY, **kl)), {"strict": strict, "lax": lax}))
    totals = summed.totals()
    high, some = totals.differences
    assert (high.n_only, high.n_only_against, high.n_both, high.median_steps_earlier) == (1, 0, 2, 2.0)
    assert (some.rule, some.n_both, some.median_steps_earlier) == ("some", 3, 0)

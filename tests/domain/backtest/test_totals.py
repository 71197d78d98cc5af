"""The totals of a backtest over many runs."""

from __future__ import annotations

from tests.domain.backtest.histories import RISE, history, rewards
from tests.domain.pipeline.closings import parse_rules
from trmon.domain.backtest.evaluation import backtest_run
from trmon.domain.backtest.totals import BacktestSum, DetectionTotals

RULES = """
- {name: high, severity: page, summary: s, immune_steps: 0, when: {signal: kl_k3, above: 1}}
- {name: some, severity: warn, summary: s, immune_steps: 0, when: {signal: kl_k3, above: 0.5}}
"""
STEADY = [0.5] * 200
FALL = [*RISE, *[0.2] * 140]
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
        history(steps(FALL, at_15=2.0)),
        history(steps(FALL, at_45=0.7, at_90=2.0)),
        history(steps(FALL)),
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

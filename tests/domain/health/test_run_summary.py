"""The summary of a run: many judged rows in few points, of the newest attempt alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from trmon.domain.collapse_risk.risk_reading import OUTSIDE, RISK
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import Judge, JudgeState, Place, Row
from trmon.domain.health.run_summary import POINTS, Sparkline, summary_of

JUDGE = Judge(builtin_catalogue())


def judged(
    rewards: Iterable[float], *, attempt: int = 1, first: int = 0, since: JudgeState | None = None
) -> JudgeState:
    """Return the state after rows with these rewards, and a KL of a hundredth of each; NaN is not logged."""
    state = since or JudgeState()
    for step, reward in enumerate(rewards, first):
        values = {} if math.isnan(reward) else {"reward_mean": reward, "mismatch_kl_k3": reward / 100.0}
        state = JUDGE.fold(state, Row(place=Place(attempt, step), values=values, facts={}))
    return state


def line(state: JudgeState) -> Sparkline | None:
    return summary_of({}, state).reward


def test_few_rows_are_drawn_as_they_are() -> None:
    state = judged([1.0, math.nan, 0.123456], first=3)
    found = summary_of({}, state)
    assert found.reward == Sparkline(first_step=3, last_step=5, values=(1.0, None, 0.1235))
    assert found.kl == Sparkline(first_step=3, last_step=5, values=(0.01, None, 0.001235))


def test_many_rows_are_drawn_by_the_mean_of_what_is_known() -> None:
    found = line(judged([1.0, 3.0, math.nan, 2.0] * POINTS))
    assert found == Sparkline(first_step=0, last_step=4 * POINTS - 1, values=(2.0,) * POINTS)


def test_a_long_run_shows_its_newest_rows() -> None:
    found = line(judged(float(step) for step in range(500)))
    assert found is not None
    assert (found.first_step, found.last_step, len(found.values)) == (300, 499, POINTS)
    assert found.values[0] == pytest.approx(302.0, abs=0.5)


def test_an_attempt_that_goes_back_shows_its_own_rows() -> None:
    state = judged([5.0, 6.0], attempt=2, first=40, since=judged([1.0] * 60))
    assert line(state) == Sparkline(first_step=40, last_step=41, values=(5.0, 6.0))


def test_a_signal_that_is_logged_seldom_has_gaps_and_one_that_is_not_has_no_line() -> None:
    found = summary_of({}, judged([0.5] + [math.nan] * 99))
    assert found.reward is not None
    assert found.reward.values == (0.5, *[None] * (POINTS - 1))
    assert summary_of({}, judged([math.nan])).reward is None
    assert summary_of({}, JudgeState()).kl is None


def test_the_mask_rate_and_the_risk_are_those_of_the_newest_row() -> None:
    found = summary_of({"mask_rate": 0.25, RISK: 0.4, OUTSIDE: 0.0}, JudgeState())
    assert found.mask_rate == 0.25
    assert found.collapse_risk is not None
    assert found.collapse_risk.probability == 0.4
    assert summary_of({"mask_rate": math.nan}, JudgeState()) == summary_of({}, JudgeState())

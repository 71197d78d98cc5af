"""The history of the inputs against a plain computation, one input and one step at a time."""

from __future__ import annotations

import math

import numpy as np

from trmon.domain.collapse_risk.risk_inputs import N_INPUTS, InputHistory, Statistic


def _plain(values: list[float]) -> dict[Statistic, float]:
    known = [value for value in values if math.isfinite(value)]
    averages = {Statistic.FAST: 10, Statistic.MIDDLE: 20, Statistic.SLOW: 50}
    state = dict.fromkeys(Statistic, 0.0)
    for place, value in enumerate(known):
        before = dict(state)
        deviation = 0.0 if place == 0 else abs(value - before[Statistic.SLOW])
        if place < 30:
            state[Statistic.BASE_SUM] += value
            state[Statistic.BASE_SUM_SQ] += value**2
            state[Statistic.BASE_SPREAD_SUM] += deviation if place >= 10 else 0.0
        for row, steps in averages.items():
            state[row] = value if place == 0 else before[row] + 2 / (steps + 1) * (value - before[row])
        spread = before[Statistic.SPREAD]
        state[Statistic.SPREAD] = spread + 2 / 21 * (deviation - spread) if place >= 10 else deviation
        middle = state[Statistic.MIDDLE]
        state[Statistic.LARGEST] = max(before[Statistic.LARGEST], middle) if place >= 10 else middle
        state[Statistic.SMALLEST] = min(before[Statistic.SMALLEST], middle) if place >= 10 else middle
        jump = 0.0 if place == 0 else value - before[Statistic.SLOW]
        state[Statistic.JUMP] = max(0.95 * before[Statistic.JUMP], jump)
        state[Statistic.COUNT] += 1
    return state


def test_the_history_equals_a_plain_computation_and_skips_what_is_not_known() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(80, N_INPUTS)).cumsum(axis=0)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 0] = np.nan
    history = InputHistory()
    for step in values:
        history = history.with_step(step)
    for place in range(N_INPUTS):
        expected = _plain(values[:, place].tolist())
        for statistic in Statistic:
            np.testing.assert_allclose(
                history.statistics[statistic, place], expected[statistic], rtol=1e-12, atol=1e-12
            )


def test_a_history_without_a_step_is_all_zeros() -> None:
    assert not InputHistory().statistics.any()

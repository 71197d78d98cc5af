"""Triggers: they fire on what the rows of a run say, and not before there is enough of it."""

from __future__ import annotations

import math

import pytest

from research.tests.interventions.steps import steps_of
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.errors import InvalidInput
from trmon_research.interventions.trigger import DeclineTrigger, SignalTrigger

RISING = [0.1, 0.6, 0.7, 0.2, 0.6, 0.7, 0.8]


@pytest.mark.parametrize(("for_steps", "first"), [(1, 2), (2, 3), (3, 7)])
def test_a_signal_must_stay_above_the_threshold(for_steps: int, first: int) -> None:
    trigger = SignalTrigger(threshold=0.5, for_steps=for_steps)
    fired = [n for n in range(1, len(RISING) + 1) if trigger.fires(steps_of({RISK: RISING[:n]}))]
    assert fired[0] == first


def test_an_unknown_value_is_not_above_it() -> None:
    assert not SignalTrigger(for_steps=2).fires(steps_of({RISK: [0.9, math.nan]}))


def test_a_signal_that_no_step_has_is_an_error() -> None:
    steps = steps_of({"lr": [0.1] * 200})
    assert not SignalTrigger().fires(steps[:199])
    with pytest.raises(InvalidInput, match="no row has collapse_risk"):
        SignalTrigger().fires(steps)


@pytest.mark.parametrize(
    ("rewards", "norms", "fires"),
    [
        ([0.6] * 80, [1.0] * 80, False),
        ([0.6] * 60 + [0.4] * 20, [1.0] * 80, True),
        ([0.6] * 80, [1.0] * 79 + [7.0], True),
        ([0.6] * 80, [1.0] * 79 + [5.0], False),
        ([0.6] * 20 + [0.2] * 20, [1.0] * 39 + [99.0], False),
    ],
    ids=["steady", "falling reward", "spike", "small spike", "too early"],
)
def test_a_decline_shows_in_the_reward_or_the_gradient(rewards: list[float], norms: list[float], fires: bool) -> None:
    assert DeclineTrigger().fires(steps_of({"reward_mean": rewards, "grad_norm": norms})) is fires

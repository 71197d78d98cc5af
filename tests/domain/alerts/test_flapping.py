"""Flapping: said with the transition that is one too many, then quiet until it settles."""

from __future__ import annotations

import pytest

from trmon.domain.alerts.flapping import FlapState, flap_state

SIX = (10, 20, 30, 40, 50, 60)


@pytest.mark.parametrize(
    ("steps", "at", "now", "expected"),
    [
        pytest.param((10,), 10, 10, FlapState.CALM, id="the first transition"),
        pytest.param(SIX[:5], 50, 50, FlapState.CALM, id="the fifth"),
        pytest.param(SIX, 60, 60, FlapState.BEGINS, id="the sixth says so"),
        pytest.param((*SIX, 70), 70, 70, FlapState.GOES_ON, id="the seventh is quiet"),
        pytest.param((*SIX, 70), 60, 70, FlapState.BEGINS, id="the sixth, looked at after the seventh"),
        pytest.param((*SIX, 70), 70, 120, FlapState.CALM, id="the seventh, looked at when it has settled"),
        pytest.param((0, 100, 200, 300, 400, 500, 600), 600, 600, FlapState.CALM, id="seven that are far between"),
        pytest.param((7,) * 7, 7, 7, FlapState.GOES_ON, id="a state that comes and goes within a step"),
    ],
)
def test_an_alert_flaps_when_it_changes_too_often(
    steps: tuple[int, ...], at: int, now: int, expected: FlapState
) -> None:
    assert flap_state(steps, at_step=at, now_step=now) is expected

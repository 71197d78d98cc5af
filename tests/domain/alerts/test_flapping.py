"""Flapping: reported with the transition that exceeds the limit, then muted until the alert is stable."""

from __future__ import annotations

import pytest

from trmon.domain.alerts.silences import FlapState, flap_state

SIX = (10, 20, 30, 40, 50, 60)


@pytest.mark.parametrize(
    ("steps", "at", "now", "expected"),
    [
        pytest.param((10,), 10, 10, FlapState.STABLE, id="the first transition"),
        pytest.param(SIX[:5], 50, 50, FlapState.STABLE, id="the fifth"),
        pytest.param(SIX, 60, 60, FlapState.STARTED, id="the sixth starts it"),
        pytest.param((*SIX, 70), 70, 70, FlapState.ONGOING, id="the seventh continues it"),
        pytest.param((*SIX, 70), 60, 70, FlapState.STARTED, id="the sixth, seen after the seventh"),
        pytest.param((*SIX, 70), 70, 120, FlapState.STABLE, id="the seventh, seen when the alert is stable"),
        pytest.param((0, 100, 200, 300, 400, 500, 600), 600, 600, FlapState.STABLE, id="seven that are far apart"),
        pytest.param((7,) * 7, 7, 7, FlapState.ONGOING, id="a run state that changes within a step"),
    ],
)
def test_an_alert_flaps_when_it_changes_too_often(
    steps: tuple[int, ...], at: int, now: int, expected: FlapState
) -> None:
    assert flap_state(steps, at_step=at, now_step=now) is expected

"""What is told when its time has come, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.memory_log import MemoryLog
from tests.domain.test_deliveries import ALERT
from trmon.domain.alerts import AlertState, Delivery
from trmon.domain.muting import LATE_SECONDS, Mute, Situation, muted

RUN = MemoryLog().stored_run
NOW = 1000.0
FIRING = Delivery(id=1, receiver="hook", dedup_key="x", body={}, episode=ALERT.episode, made_at=NOW - LATE_SECONDS)
LATE = replace(FIRING, made_at=NOW - LATE_SECONDS - 1)
RESOLVED = replace(FIRING, told_state=AlertState.RESOLVED)
HEARD = frozenset({("hook", ALERT.episode)})


def situation(*, firing: bool = True, tried: frozenset[tuple[str, str]] = frozenset()) -> Situation:
    return Situation(run=RUN, firing=(ALERT,) if firing else (), tried=tried)


@pytest.mark.parametrize(
    ("delivery", "now", "expected"),
    [
        pytest.param(FIRING, situation(), None, id="an alert that fires"),
        pytest.param(FIRING, situation(firing=False), None, id="one that is over, but only just"),
        pytest.param(LATE, situation(), None, id="one that still fires, late"),
        pytest.param(LATE, situation(firing=False), Mute.ENDED, id="one that is over, late"),
        pytest.param(replace(LATE, episode="1/high@3:8"), situation(), Mute.ENDED, id="another episode, late"),
        pytest.param(replace(FIRING, rounds=1), situation(firing=False), Mute.ENDED, id="a round after the end"),
        pytest.param(RESOLVED, situation(firing=False, tried=HEARD), None, id="the end of what was heard of"),
        pytest.param(RESOLVED, situation(firing=False), Mute.UNTOLD, id="the end of what nobody heard of"),
        pytest.param(
            replace(RESOLVED, receiver="pager"),
            situation(firing=False, tried=HEARD),
            Mute.UNTOLD,
            id="the end of what another receiver heard of",
        ),
    ],
)
def test_a_delivery_is_muted_with_a_reason(delivery: Delivery, now: Situation, expected: Mute | None) -> None:
    assert muted(delivery, now, now=NOW) is expected


def test_an_episode_is_one_of_an_alert_at_a_batch() -> None:
    assert ALERT.episode == "1/high@3:7"
    assert replace(ALERT, update=2).episode == "1/high@3:7.2"

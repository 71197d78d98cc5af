"""What is told when its time has come, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.test_deliveries import ALERT
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState, Delivery, DeliveryState
from trmon.domain.alerts.muting import LATE_SECONDS, DeliveryContext, MuteReason, mute_reason
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.runs.run import Run, RunState

RUN = MemoryLog().stored_run
FINISHED = replace(RUN, state=RunState.FINISHED)
NOW = 1000.0
OVER = replace(ALERT, state=AlertState.RESOLVED)
FIRING = Delivery(id=1, receiver="hook", dedup_key="x", body={}, episode=ALERT.episode, made_at=NOW - LATE_SECONDS)
LATE = replace(FIRING, made_at=NOW - LATE_SECONDS - 1)
HELD = replace(FIRING, state=DeliveryState.HELD)
RESOLVED = replace(FIRING, told_state=AlertState.RESOLVED)
HEARD = frozenset({("hook", ALERT.episode)})
SILENCE = Silence(
    id=1,
    project=None,
    matchers=(Matcher(label="rule", operator=MatchOperator.EQUAL, value=ALERT.rule),),
    author="ana",
    note="",
    starts_at=0.0,
    ends_at=NOW + 1,
)


def delivery_context(alert: Alert | None = ALERT, *, run: Run = RUN, **known: Any) -> DeliveryContext:
    """Return the situation of a run with an alert or none; other fields of Situation by name."""
    return DeliveryContext(run=run, alerts=() if alert is None else (alert,), **{"tried": frozenset(), **known})


@pytest.mark.parametrize(
    ("delivery", "now", "expected"),
    [
        pytest.param(FIRING, delivery_context(), None, id="an alert that fires"),
        pytest.param(FIRING, delivery_context(OVER), None, id="one that is over, but only just"),
        pytest.param(FIRING, delivery_context(None), MuteReason.ENDED, id="one that was over long ago"),
        pytest.param(LATE, delivery_context(), None, id="one that still fires, late"),
        pytest.param(LATE, delivery_context(OVER), MuteReason.ENDED, id="one that is over, late"),
        pytest.param(
            replace(LATE, episode="1/high@3:8"), delivery_context(), MuteReason.ENDED, id="another episode, late"
        ),
        pytest.param(replace(FIRING, rounds=1), delivery_context(OVER), MuteReason.ENDED, id="a round after the end"),
        pytest.param(
            replace(FIRING, rounds=1, body={"alert": {"since_at": ALERT.since_at - 9.0}}),
            delivery_context(),
            MuteReason.ENDED,
            id="a round of what ended, and fires again at the same step",
        ),
        pytest.param(
            replace(FIRING, rounds=1, body={"alert": {"since_at": ALERT.since_at}}),
            delivery_context(),
            None,
            id="a round",
        ),
        pytest.param(FIRING, delivery_context(silences=(SILENCE,)), MuteReason.SILENCED, id="one that is silenced"),
        pytest.param(
            FIRING,
            delivery_context(OVER, silences=(SILENCE,)),
            MuteReason.SILENCED,
            id="one that ended under a silence",
        ),
        pytest.param(HELD, delivery_context(), None, id="one that was silenced and still fires"),
        pytest.param(HELD, delivery_context(OVER), MuteReason.ENDED, id="one that ended while it was silenced"),
        pytest.param(FIRING, delivery_context(run=FINISHED), MuteReason.FINISHED, id="one of a finished run"),
        pytest.param(RESOLVED, delivery_context(OVER, tried=HEARD), None, id="the end of what was heard of"),
        pytest.param(
            RESOLVED, delivery_context(OVER, run=FINISHED, tried=HEARD), None, id="also by the end of the run"
        ),
        pytest.param(RESOLVED, delivery_context(None), MuteReason.UNTOLD, id="the end of what nobody heard of"),
        pytest.param(
            RESOLVED,
            delivery_context(OVER, tried=HEARD, waiting=HEARD),
            MuteReason.EARLY,
            id="the end of what is being told",
        ),
        pytest.param(
            replace(RESOLVED, receiver="pager"),
            delivery_context(OVER, tried=HEARD),
            MuteReason.UNTOLD,
            id="the end of what another receiver heard of",
        ),
    ],
)
def test_a_delivery_is_muted_with_a_reason(
    delivery: Delivery, now: DeliveryContext, expected: MuteReason | None
) -> None:
    assert mute_reason(delivery, now, now=NOW) is expected


def test_an_episode_is_one_of_an_alert_at_a_batch() -> None:
    assert ALERT.episode == "1/high@3:7"
    assert replace(ALERT, update=2).episode == "1/high@3:7.2"

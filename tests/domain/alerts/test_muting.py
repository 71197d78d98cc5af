"""Which due deliveries are sent, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryContext, DeliveryState
from trmon.domain.alerts.muting import LATE_SECONDS, MuteReason, mute_reason
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.runs.run import Run, RunState

RUN = MemoryLog().stored_run
FINISHED = replace(RUN, state=RunState.FINISHED)
NOW = 1000.0
ENDED = replace(ALERT, state=AlertState.RESOLVED)
FIRING = delivery_of(made_at=NOW - LATE_SECONDS)
LATE = replace(FIRING, made_at=NOW - LATE_SECONDS - 1)
HELD = replace(FIRING, state=DeliveryState.HELD)
RESOLVED = replace(FIRING, told_state=AlertState.RESOLVED)
NOTIFIED = frozenset({("hook", ALERT.episode)})
TRIED = dict.fromkeys(NOTIFIED, 0.0)
SILENCE = Silence(
    id=1,
    project=None,
    matchers=(Matcher(label="rule", operator=MatchOperator.EQUAL, value=ALERT.rule),),
    author="ana",
    note="",
    starts_at=0.0,
    ends_at=NOW + 1,
)


def delivery_context(alert: Alert | None = ALERT, *, run: Run = RUN, **fields: Any) -> DeliveryContext:
    """Return the context of a run with an alert or none; other fields of DeliveryContext by name."""
    return DeliveryContext(run=run, alerts=() if alert is None else (alert,), **{"tried": {}, **fields})


@pytest.mark.parametrize(
    ("delivery", "context", "expected"),
    [
        pytest.param(FIRING, delivery_context(), None, id="its alert fires"),
        pytest.param(FIRING, delivery_context(ENDED), None, id="its alert ended a moment ago"),
        pytest.param(FIRING, delivery_context(None), MuteReason.ENDED, id="its alert ended long ago"),
        pytest.param(LATE, delivery_context(), None, id="late, its alert fires"),
        pytest.param(LATE, delivery_context(ENDED), MuteReason.ENDED, id="late, its alert ended"),
        pytest.param(
            replace(LATE, episode="1/high@3:8"), delivery_context(), MuteReason.ENDED, id="late, another episode fires"
        ),
        pytest.param(replace(FIRING, rounds=1), delivery_context(ENDED), MuteReason.ENDED, id="a reminder, too late"),
        pytest.param(
            replace(delivery_of(replace(ALERT, since_at=ALERT.since_at - 9.0)), rounds=1),
            delivery_context(),
            MuteReason.ENDED,
            id="a reminder of an alert that ended and fires again at the same step",
        ),
        pytest.param(
            replace(FIRING, rounds=1),
            delivery_context(),
            None,
            id="a reminder",
        ),
        pytest.param(FIRING, delivery_context(silences=(SILENCE,)), MuteReason.SILENCED, id="its alert is silenced"),
        pytest.param(
            FIRING,
            delivery_context(ENDED, silences=(SILENCE,)),
            MuteReason.SILENCED,
            id="its alert ended under a silence",
        ),
        pytest.param(HELD, delivery_context(), None, id="held, its alert fires"),
        pytest.param(HELD, delivery_context(ENDED), MuteReason.ENDED, id="held, its alert ended"),
        pytest.param(FIRING, delivery_context(run=FINISHED), MuteReason.FINISHED, id="its run has finished"),
        pytest.param(RESOLVED, delivery_context(ENDED, tried=TRIED), None, id="resolved, after it was sent"),
        pytest.param(
            RESOLVED, delivery_context(ENDED, run=FINISHED, tried=TRIED), None, id="resolved by the end of the run"
        ),
        pytest.param(RESOLVED, delivery_context(None), MuteReason.NEVER_NOTIFIED, id="resolved, never notified"),
        pytest.param(
            RESOLVED,
            delivery_context(ENDED, tried=TRIED, waiting=NOTIFIED),
            MuteReason.OUT_OF_ORDER,
            id="resolved, while the firing notification is due",
        ),
        pytest.param(
            replace(RESOLVED, receiver="pager"),
            delivery_context(ENDED, tried=TRIED),
            MuteReason.NEVER_NOTIFIED,
            id="resolved, with a firing notification to another receiver only",
        ),
    ],
)
def test_a_delivery_is_muted_with_a_reason(
    delivery: Delivery, context: DeliveryContext, expected: MuteReason | None
) -> None:
    assert mute_reason(delivery, context, now=NOW) is expected


def test_an_episode_is_named_by_its_alert_and_batch() -> None:
    assert ALERT.episode == "1/high@3:7"
    assert replace(ALERT, update=2).episode == "1/high@3:7.2"

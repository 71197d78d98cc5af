"""What is said when a delivery is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.test_deliveries import ALERT, fired
from tests.domain.stages.closings import pass_context
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.deliveries import deliveries_of
from trmon.domain.alerts.flapping import MAX_TRANSITIONS
from trmon.domain.alerts.muting import DeliveryContext, MuteReason, mute_reason
from trmon.domain.alerts.telling import present_delivery, resend_after_seconds
from trmon.domain.alerts.transitions import transition_event
from trmon.domain.model.severity import Severity

WARNING = replace(ALERT, severity=Severity.WARN)
[DELIVERY] = deliveries_of(fired(), pass_context())


def delivery_context(*firing: Alert, transitions: int = 1, acked: bool = False) -> DeliveryContext:
    """A run on which an alert fires that has changed a number of times in as many steps, the last at its own."""
    events = [transition_event(replace(ALERT, step=ALERT.step - back)) for back in range(transitions)]
    return DeliveryContext(
        run=pass_context().run,
        alerts=firing or (ALERT,),
        tried=frozenset(),
        acked=frozenset({ALERT.episode} if acked else ()),
        events=tuple(events),
    )


def test_a_notification_lists_what_fires_and_who_has_it() -> None:
    body = present_delivery(DELIVERY, delivery_context(acked=True), now=0.0).body
    assert body["firing"] == [
        {
            "rule": "high",
            "severity": "page",
            "since_step": 7,
            "summary": "x is inf",
            "acknowledged": True,
            "muted": None,
        }
    ]
    assert body["flapping"] is None
    assert body["told_before"] == 0


def test_an_alert_that_begins_to_flap_is_said_to_and_then_muted() -> None:
    begins = delivery_context(transitions=MAX_TRANSITIONS)
    assert mute_reason(DELIVERY, begins, now=0.0) is None
    assert present_delivery(DELIVERY, begins, now=0.0).body["flapping"] == {"transitions": 6, "within_steps": 100}
    assert mute_reason(DELIVERY, delivery_context(transitions=MAX_TRANSITIONS + 1), now=0.0) is MuteReason.FLAPPING


def test_transitions_of_other_alerts_and_attempts_are_no_flapping() -> None:
    known = delivery_context(transitions=9)
    elsewhere = [replace(e, identity="1/low") for e in known.events]
    before = [replace(e, attempt_id=2) for e in known.events]
    assert mute_reason(DELIVERY, replace(known, events=(*elsewhere, *before)), now=0.0) is None


@pytest.mark.parametrize(
    ("delivery", "now", "repeat_seconds", "expected"),
    [
        pytest.param(DELIVERY, delivery_context(), None, 60.0, id="a page is told again"),
        pytest.param(DELIVERY, delivery_context(WARNING), None, None, id="a warning is not"),
        pytest.param(DELIVERY, delivery_context(WARNING), 5.0, 5.0, id="but it is to a receiver that forgets"),
        pytest.param(
            replace(DELIVERY, told_state=AlertState.RESOLVED),
            delivery_context(),
            5.0,
            None,
            id="that it resolved, once",
        ),
        pytest.param(
            DELIVERY,
            delivery_context(replace(ALERT, state=AlertState.RESOLVED)),
            5.0,
            None,
            id="what ended just now is not",
        ),
        pytest.param(replace(DELIVERY, episode="other"), delivery_context(), 5.0, None, id="what is over is not"),
    ],
)
def test_what_still_fires_is_told_again(
    delivery: object, now: DeliveryContext, repeat_seconds: float | None, expected: float | None
) -> None:
    assert resend_after_seconds(delivery, now, remind_seconds=60.0, repeat_seconds=repeat_seconds) == expected  # type: ignore[arg-type]

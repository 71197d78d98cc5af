"""What is said when a delivery is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.test_deliveries import ALERT, fired
from tests.domain.stages.closings import watch
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.deliveries import deliveries_of
from trmon.domain.alerts.flapping import MAX_TRANSITIONS
from trmon.domain.alerts.muting import Mute, Situation, muted
from trmon.domain.alerts.telling import again_after, presented
from trmon.domain.alerts.transitions import event_of
from trmon.domain.model.severity import Severity

WARNING = replace(ALERT, severity=Severity.WARN)
[DELIVERY] = deliveries_of(fired(), watch())


def situation(*firing: Alert, transitions: int = 1, acked: bool = False) -> Situation:
    """A run on which an alert fires that has changed a number of times in as many steps, the last at its own."""
    events = [event_of(replace(ALERT, step=ALERT.step - back)) for back in range(transitions)]
    return Situation(
        run=watch().run,
        alerts=firing or (ALERT,),
        tried=frozenset(),
        acked=frozenset({ALERT.episode} if acked else ()),
        events=tuple(events),
    )


def test_a_notification_lists_what_fires_and_who_has_it() -> None:
    body = presented(DELIVERY, situation(acked=True), now=0.0).body
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
    begins = situation(transitions=MAX_TRANSITIONS)
    assert muted(DELIVERY, begins, now=0.0) is None
    assert presented(DELIVERY, begins, now=0.0).body["flapping"] == {"transitions": 6, "within_steps": 100}
    assert muted(DELIVERY, situation(transitions=MAX_TRANSITIONS + 1), now=0.0) is Mute.FLAPPING


def test_transitions_of_other_alerts_and_attempts_are_no_flapping() -> None:
    known = situation(transitions=9)
    elsewhere = [replace(e, identity="1/low") for e in known.events]
    before = [replace(e, attempt_id=2) for e in known.events]
    assert muted(DELIVERY, replace(known, events=(*elsewhere, *before)), now=0.0) is None


@pytest.mark.parametrize(
    ("delivery", "now", "repeat_seconds", "expected"),
    [
        pytest.param(DELIVERY, situation(), None, 60.0, id="a page is told again"),
        pytest.param(DELIVERY, situation(WARNING), None, None, id="a warning is not"),
        pytest.param(DELIVERY, situation(WARNING), 5.0, 5.0, id="but it is to a receiver that forgets"),
        pytest.param(
            replace(DELIVERY, told_state=AlertState.RESOLVED), situation(), 5.0, None, id="that it resolved, once"
        ),
        pytest.param(
            DELIVERY, situation(replace(ALERT, state=AlertState.RESOLVED)), 5.0, None, id="what ended just now is not"
        ),
        pytest.param(replace(DELIVERY, episode="other"), situation(), 5.0, None, id="what is over is not"),
    ],
)
def test_what_still_fires_is_told_again(
    delivery: object, now: Situation, repeat_seconds: float | None, expected: float | None
) -> None:
    assert again_after(delivery, now, remind_seconds=60.0, repeat_seconds=repeat_seconds) == expected  # type: ignore[arg-type]

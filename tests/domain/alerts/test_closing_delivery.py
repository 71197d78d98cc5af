"""The delivery that resolves an alert whose run is deleted or renamed."""

from __future__ import annotations

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.owner_change import closing_delivery
from trmon.domain.alerts.transitions import TransitionReason


def test_it_resolves_the_alert_under_the_name_of_the_run_that_the_receiver_knows() -> None:
    fired = delivery_of()
    closing = closing_delivery(fired, reason=TransitionReason.DELETED, now=99.0)
    assert closing.dedup_key == f"hook:{ALERT.episode}:deleted:grpo:resolved"
    assert (closing.run_id, closing.episode, closing.told_state) == (None, ALERT.episode, AlertState.RESOLVED)
    told = closing.notification
    assert (told.status, told.reason, told.url) == (AlertState.RESOLVED, "the run was deleted", None)
    assert (told.alert.at, told.alert.since_at, told.run) == (99.0, ALERT.since_at, fired.notification.run)

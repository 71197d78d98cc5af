"""A notification as it is sent: completed with the state of its run."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import INCIDENT_RULE, Alert, AlertState
from trmon.domain.alerts.delivery import DeliveryContext
from trmon.domain.alerts.muting import MuteReason, enrich_notification, mute_reason
from trmon.domain.alerts.notification import FiringAlert, Flapping
from trmon.domain.alerts.silences import MAX_TRANSITIONS
from trmon.domain.alerts.transitions import transition_event
from trmon.domain.finding import Severity

DELIVERY = delivery_of()


def delivery_context(*firing: Alert, transitions: int = 1, acked: bool = False) -> DeliveryContext:
    """Return the context of a run whose alert had a number of transitions in as many steps, the last at its own."""
    events = [transition_event(replace(ALERT, step=ALERT.step - back)) for back in range(transitions)]
    return DeliveryContext(
        run=MemoryLog().stored_run,
        alerts=firing or (ALERT,),
        tried={},
        acked=frozenset({ALERT.episode} if acked else ()),
        events=tuple(events),
    )


def test_a_notification_lists_the_firing_alerts_and_whether_they_are_acknowledged() -> None:
    notification = enrich_notification(DELIVERY, delivery_context(acked=True), now=0.0)
    assert notification.firing == (
        FiringAlert(
            rule="high", severity=Severity.PAGE, since_step=7, summary="x is inf", acknowledged=True, muted=None
        ),
    )
    assert notification.flapping is None
    assert notification.told_before == 0


def test_a_notification_names_the_current_owner_and_the_key_of_the_delivery() -> None:
    context = delivery_context()
    context = replace(context, run=replace(context.run, owner="bo"))
    notification = enrich_notification(replace(DELIVERY, rounds=2), context, now=0.0)
    assert (notification.run.owner, notification.key, notification.told_before) == ("bo", "x:2", 2)


def test_the_end_of_an_incident_says_whether_the_run_ended_ill() -> None:
    over = replace(ALERT, rule=INCIDENT_RULE, state=AlertState.RESOLVED)
    cured = delivery_of(over)
    with_the_run = replace(cured, notification=structs.replace(cured.notification, reason="the run has finished"))
    found = [enrich_notification(delivery, delivery_context(), now=0.0) for delivery in (cured, with_the_run)]
    assert [notification.ended_ill for notification in found] == [False, True]


def test_an_alert_that_starts_to_flap_is_reported_and_then_muted() -> None:
    starts = delivery_context(transitions=MAX_TRANSITIONS)
    assert mute_reason(DELIVERY, starts, now=0.0) is None
    flapping = enrich_notification(DELIVERY, starts, now=0.0).flapping
    assert flapping == Flapping(transitions=6, within_steps=100)
    assert mute_reason(DELIVERY, delivery_context(transitions=MAX_TRANSITIONS + 1), now=0.0) is MuteReason.FLAPPING


def test_transitions_of_other_alerts_and_attempts_do_not_count_as_flapping() -> None:
    context = delivery_context(transitions=9)
    of_other_alert = [replace(event, identity="1/low") for event in context.events]
    of_other_attempt = [replace(event, attempt_id=2) for event in context.events]
    assert mute_reason(DELIVERY, replace(context, events=(*of_other_alert, *of_other_attempt)), now=0.0) is None

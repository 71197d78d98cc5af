"""Which due deliveries are sent, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import (
    ENDED_LABEL,
    INCIDENT_RULE,
    MAX_TRANSITIONS,
    Acknowledgement,
    Alert,
    AlertState,
    transition_event,
)
from trmon.domain.alerts.delivery import (
    Delivery,
    DeliveryContext,
    DeliveryState,
    RetryPolicy,
    acknowledging_delivery,
    repeat_interval_seconds,
)
from trmon.domain.alerts.muting import (
    LATE_SECONDS,
    DeliveryUpdate,
    DispatchOutcome,
    MuteReason,
    enrich_notification,
    mute_reason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.notification import FiringAlert, Flapping, NotifiedState
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import Severity

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
    return DeliveryContext(**{"run": run, "alerts": () if alert is None else (alert,), "tried": {}, **fields})


ACK = Acknowledgement(author="ana", note="", at=NOW)
ACKED = delivery_context(acked={ALERT.episode: ACK})
REMINDER = replace(FIRING, rounds=1)
FIRES_AGAIN = replace(delivery_of(replace(ALERT, since_at=ALERT.since_at - 9.0)), rounds=1)
TO_PAGER = replace(RESOLVED, receiver="pager")
MUTED = [
    ("its alert fires", FIRING, delivery_context(), None),
    ("its alert ended a moment ago", FIRING, delivery_context(ENDED), None),
    ("its alert ended long ago", FIRING, delivery_context(None), MuteReason.ENDED),
    ("late, its alert fires", LATE, delivery_context(), None),
    ("late, its alert ended", LATE, delivery_context(ENDED), MuteReason.ENDED),
    ("late, another episode fires", replace(LATE, episode="1/high@3:8"), delivery_context(), MuteReason.ENDED),
    ("a reminder, too late", REMINDER, delivery_context(ENDED), MuteReason.ENDED),
    ("a reminder of one that fires again at the same step", FIRES_AGAIN, delivery_context(), MuteReason.ENDED),
    ("a reminder", REMINDER, delivery_context(), None),
    ("its alert is silenced", FIRING, delivery_context(silences=(SILENCE,)), MuteReason.SILENCED),
    ("its alert ended under a silence", FIRING, delivery_context(ENDED, silences=(SILENCE,)), MuteReason.SILENCED),
    ("held, its alert fires", HELD, delivery_context(), None),
    ("held, its alert ended", HELD, delivery_context(ENDED), MuteReason.ENDED),
    ("its run has finished", FIRING, delivery_context(run=FINISHED), MuteReason.FINISHED),
    ("resolved, after it was sent", RESOLVED, delivery_context(ENDED, tried=TRIED), None),
    ("resolved by the end of the run", RESOLVED, delivery_context(ENDED, run=FINISHED, tried=TRIED), None),
    ("resolved, never notified", RESOLVED, delivery_context(None), MuteReason.NEVER_NOTIFIED),
    (
        "resolved, while the firing notification is due",
        *(RESOLVED, delivery_context(ENDED, tried=TRIED, waiting=NOTIFIED), MuteReason.OUT_OF_ORDER),
    ),
    (
        "resolved, another receiver knows",
        TO_PAGER,
        delivery_context(ENDED, tried=TRIED),
        MuteReason.NEVER_NOTIFIED,
    ),
]


@pytest.mark.parametrize(("sentence", "delivery", "context", "expected"), MUTED, ids=[case[0] for case in MUTED])
def test_a_delivery_is_muted_with_a_reason(
    sentence: str, delivery: Delivery, context: DeliveryContext, expected: MuteReason | None
) -> None:
    assert mute_reason(delivery, context, now=NOW) is expected


def test_an_acknowledged_alert_is_sent_again_to_a_receiver_that_drops_what_is_not_repeated() -> None:
    assert mute_reason(FIRING, ACKED, now=NOW) is MuteReason.ACKNOWLEDGED
    assert mute_reason(FIRING, ACKED, now=NOW, must_repeat=True) is None


def test_an_episode_is_named_by_its_alert_and_batch() -> None:
    assert ALERT.episode == "1/high@3:7"
    assert replace(ALERT, update=2).episode == "1/high@3:7.2"


RETRY = RetryPolicy(max_attempts=3, backoff_seconds=2.0)
NEW = delivery_of(id=7)
DELIVERED_BEFORE = replace(NEW, rounds=1, state=DeliveryState.STANDING)


def failed(delivery: Delivery, *, may_succeed: bool = True) -> DeliveryUpdate:
    return update_after_failure(delivery, now=NOW, error="answered 503", retry=RETRY, may_succeed=may_succeed)


def succeeded(delivery: Delivery, *, repeat_seconds: float | None = None) -> DeliveryUpdate:
    return update_after_success(delivery, now=NOW, repeat_seconds=repeat_seconds)


def muted(reason: MuteReason, delivery: Delivery = NEW) -> DeliveryUpdate:
    return update_after_mute(delivery, now=NOW, reason=reason)


DELIVERED, DEAD, RETRIED = DispatchOutcome.DELIVERED, DispatchOutcome.DEAD, DispatchOutcome.RETRIED
TIRED, REPEATED = replace(NEW, attempts=2), replace(DELIVERED_BEFORE, attempts=9)
UPDATES = [
    ("delivered once, it is done", succeeded(NEW), DELIVERED, DeliveryState.DELIVERED, (0.0, 1, 1)),
    (
        "while its alert fires, it is due again",
        *(succeeded(TIRED, repeat_seconds=60.0), DELIVERED, DeliveryState.STANDING, (60.0, 0, 1)),
    ),
    ("failed, it is retried", failed(NEW), RETRIED, DeliveryState.DUE, (2.0, 1, 0)),
    ("failed too often, it is dead", failed(TIRED), DEAD, DeliveryState.DEAD, (0.0, 3, 0)),
    ("refused, it is dead at once", failed(NEW, may_succeed=False), DEAD, DeliveryState.DEAD, (0.0, 1, 0)),
    ("a reminder is retried without a limit", failed(REPEATED), RETRIED, DeliveryState.STANDING, (600.0, 10, 1)),
    ("silenced, looked at later", muted(MuteReason.SILENCED), DispatchOutcome.HELD, DeliveryState.HELD, (15.0, 0, 0)),
    ("before its turn, soon", muted(MuteReason.OUT_OF_ORDER), DispatchOutcome.HELD, DeliveryState.HELD, (1.0, 0, 0)),
    ("ended, muted for good", muted(MuteReason.ENDED), DispatchOutcome.MUTED, DeliveryState.MUTED, (0.0, 0, 0)),
    (
        "ended after a delivery, it is delivered",
        muted(MuteReason.ENDED, DELIVERED_BEFORE),
        *(DispatchOutcome.MUTED, DeliveryState.DELIVERED, (0.0, 0, 1)),
    ),
]


@pytest.mark.parametrize(("sentence", "update", "outcome", "state", "due"), UPDATES, ids=[case[0] for case in UPDATES])
def test_an_update_sets_the_state_and_the_next_attempt(
    sentence: str, update: DeliveryUpdate, outcome: DispatchOutcome, state: DeliveryState, due: tuple[float, int, int]
) -> None:
    assert (update.delivery_id, update.outcome, update.state) == (7, outcome, state)
    assert (update.due_at - NOW, update.attempts, update.rounds) == due


def test_an_update_has_its_reason() -> None:
    assert (failed(NEW).error, failed(NEW).tried_at) == ("answered 503", NOW)
    assert muted(MuteReason.SILENCED).mute is MuteReason.SILENCED
    assert succeeded(NEW).error is None


DELIVERY = delivery_of()


def after_transitions(n: int) -> DeliveryContext:
    """Return the context of a run whose alert had n transitions in as many steps, the last at its own."""
    events = (transition_event(replace(ALERT, step=ALERT.step - back)) for back in range(n))
    return delivery_context(events=tuple(events))


def test_a_notification_lists_the_firing_alerts_and_whether_they_are_acknowledged() -> None:
    notification = enrich_notification(DELIVERY, ACKED, now=0.0)
    assert notification.firing == (
        FiringAlert(
            rule="high",
            title="high",
            severity=Severity.PAGE,
            since_step=7,
            summary="x is inf",
            acknowledged=True,
            muted=None,
            in_incident=False,
        ),
    )
    assert (notification.ack, notification.began_at) == (ACK, ALERT.since_at)
    assert notification.flapping is None
    assert notification.told_before == 0


def test_who_has_an_alert_is_told_also_during_a_silence_until_it_ends_or_somebody_else_has_it() -> None:
    told = acknowledging_delivery(DELIVERY, ACK, now=NOW)
    assert told.notification.state is NotifiedState.ACKNOWLEDGED
    assert mute_reason(told, replace(ACKED, silences=(SILENCE,)), now=NOW) is None
    taken = replace(ACKED, acked={ALERT.episode: replace(ACK, author="bo")})
    assert mute_reason(told, taken, now=NOW) is MuteReason.TAKEN_OVER
    assert mute_reason(told, delivery_context(ENDED), now=NOW) is MuteReason.ENDED
    assert repeat_interval_seconds(told, ALERT, remind_seconds=60.0, receiver_repeat_seconds=60.0) is None


def test_alerts_that_joined_the_incident_are_marked() -> None:
    incident = replace(ALERT, identity="1/incident", rule=INCIDENT_RULE, labels={"title": "stale rollouts"})
    member = replace(ALERT, identity="1/low", rule="low")
    context = delivery_context(alerts=(incident, member))
    firing = enrich_notification(DELIVERY, context, now=0.0, leading=[incident]).firing
    assert [(one.title, one.in_incident) for one in firing] == [("stale rollouts", False), ("low", True)]


def test_a_notification_names_the_current_owner_and_the_key_of_the_delivery() -> None:
    context = delivery_context(run=replace(RUN, owner="bo"))
    notification = enrich_notification(replace(DELIVERY, rounds=2), context, now=0.0)
    assert (notification.run.owner, notification.key, notification.told_before) == ("bo", "x:2", 2)


@pytest.mark.parametrize("ended", ["ended ill", "finished with an open warning"])
def test_an_incident_that_was_not_sent_before_its_run_finished_with_it_is_sent_once_as_that(ended: str) -> None:
    opened = replace(ALERT, rule=INCIDENT_RULE)
    over = replace(opened, state=AlertState.RESOLVED, labels={ENDED_LABEL: ended})
    context = delivery_context(over, run=FINISHED)
    late = delivery_of(opened, made_at=NOW)
    assert mute_reason(late, context, now=NOW) is None
    told = enrich_notification(late, context, now=NOW)
    assert (told.ended, told.alert.severity) == (ended, Severity.WARN)


def test_an_incident_that_was_over_before_its_run_finished_is_not_sent_after_it() -> None:
    opened = replace(ALERT, rule=INCIDENT_RULE)
    context = delivery_context(replace(opened, state=AlertState.RESOLVED), run=FINISHED)
    assert mute_reason(delivery_of(opened, made_at=NOW), context, now=NOW) is MuteReason.FINISHED


def test_an_alert_that_starts_to_flap_is_reported_and_then_muted() -> None:
    starts = after_transitions(MAX_TRANSITIONS)
    assert mute_reason(DELIVERY, starts, now=0.0) is None
    flapping = enrich_notification(DELIVERY, starts, now=0.0).flapping
    assert flapping == Flapping(transitions=6, within_steps=100)
    assert mute_reason(DELIVERY, after_transitions(MAX_TRANSITIONS + 1), now=0.0) is MuteReason.FLAPPING


def test_transitions_of_other_alerts_and_attempts_do_not_count_as_flapping() -> None:
    context = after_transitions(9)
    of_other_alert = [replace(event, identity="1/low") for event in context.events]
    of_other_attempt = [replace(event, attempt_id=2) for event in context.events]
    assert mute_reason(DELIVERY, replace(context, events=(*of_other_alert, *of_other_attempt)), now=0.0) is None

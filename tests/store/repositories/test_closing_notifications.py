"""Tests closing notifications: receivers of a firing alert get a resolved notification when its run is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW, alert, append, commit, start_intake
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    MuteReason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.notification import build_notification
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.identity import RunKey
from trmon.store import Store
from trmon.store.repositories.closing_notifications import IN_FLIGHT_SECONDS

GRPO = RunKey("math", "grpo")
LATER = NOW + 100.0


@pytest.fixture
def run_id(store: Store) -> int:
    """A run with a firing alert whose notifications to "pager" and "hook" are in the outbox."""
    [receipt] = append(store, start_intake())
    firing = alert(run_id=receipt.run_id)
    put(store, receipt.run_id, AlertState.FIRING, "pager", "hook")
    commit(store, receipt.run_id, alerts=(firing,))
    return receipt.run_id


def put(store: Store, run_id: int, state: AlertState, *receivers: str) -> None:
    """Add notifications of the alert's state to the outbox."""
    changed = replace(alert(run_id=run_id), state=state)
    notification = build_notification(
        changed,
        transition_event(changed),
        reason=TransitionReason.FIRED,
        run=store.runs.by_id(run_id),
        public_url="https://x",
    )
    deliveries = (
        Delivery(
            id=0,
            receiver=receiver,
            dedup_key=f"{receiver}:{state.value}",
            notification=notification,
            due_at=NOW,
            made_at=NOW,
            run_id=run_id,
            episode=changed.episode,
            told_state=state,
        )
        for receiver in receivers
    )
    commit(store, run_id, deliveries=tuple(deliveries))


def record_result(store: Store, result: str, receiver: str) -> None:
    """Record this result for the pending deliveries of a receiver."""
    store.outbox.record(
        [_update(one, result) for one in store.outbox.due(now=LATER) if one.receiver == receiver],
    )


def _update(one: Delivery, result: str) -> DeliveryUpdate:
    if result == "failed":
        return update_after_failure(
            one, now=NOW, error="503", retry=RetryPolicy(max_attempts=9, backoff_seconds=1.0), may_succeed=True
        )
    if result == "silenced":
        return update_after_mute(one, now=NOW, reason=MuteReason.SILENCED)
    return update_after_success(one, now=NOW, repeat_seconds=3600.0 if result == "standing" else None)


def due_after_deletion(store: Store, *, now: float = LATER) -> list[tuple[str, str]]:
    """Delete the run and return the due deliveries: receiver and alert state."""
    store.runs.delete(GRPO, access=EVERYTHING, now=LATER)
    due = store.outbox.due(now=now)
    assert all(one.run_id is None for one in due)
    return sorted((one.receiver, one.told_state.value) for one in due)


def test_notified_receivers_get_a_resolved_notification_when_the_run_is_deleted(store: Store, run_id: int) -> None:
    record_result(store, "delivered", "pager")
    record_result(store, "standing", "hook")
    assert due_after_deletion(store) == [("hook", "resolved"), ("pager", "resolved")]
    [one, _] = store.outbox.due(now=LATER)
    assert (one.state, one.made_at, one.notification.alert.at) == (DeliveryState.DUE, LATER, LATER)
    assert (one.notification.status.value, one.notification.reason) == ("resolved", "the run was deleted")
    assert (one.notification.run.project, one.notification.run.run, one.notification.url) == ("math", "grpo", None)
    assert one.notification.alert.identity == "corrupt_logprobs"
    assert run_id


@pytest.mark.usefixtures("run_id")
def test_a_failed_attempt_counts_as_possibly_delivered(store: Store) -> None:
    record_result(store, "failed", "pager")
    record_result(store, "silenced", "hook")
    assert due_after_deletion(store) == [("pager", "resolved")]


@pytest.mark.usefixtures("run_id")
def test_a_notification_in_flight_delays_its_closing_notification(store: Store) -> None:
    record_result(store, "silenced", "hook")
    assert due_after_deletion(store) == []
    assert [one.receiver for one in store.outbox.due(now=LATER + IN_FLIGHT_SECONDS)] == ["pager"]


def test_a_pending_resolved_notification_is_sent_and_a_delivered_one_is_not_repeated(store: Store, run_id: int) -> None:
    record_result(store, "delivered", "pager")
    record_result(store, "delivered", "hook")
    put(store, run_id, AlertState.RESOLVED, "pager", "hook", "mail")
    record_result(store, "delivered", "hook")
    assert due_after_deletion(store) == [("pager", "resolved")]
    [waiting] = store.outbox.due(now=LATER)
    assert waiting.dedup_key == "pager:resolved"

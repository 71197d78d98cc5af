"""Farewells: whoever heard that an alert fires hears that it is over, also when its run is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW, alert, append, commit, start_intake
from trmon.domain.alerts.alert import AlertState, Delivery, DeliveryState
from trmon.domain.alerts.deliveries import notification_body
from trmon.domain.alerts.muting import MuteReason
from trmon.domain.alerts.settlement import RetryPolicy, Settlement, settle_failed, settle_muted, settle_sent
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.identity import RunKey
from trmon.store import Store
from trmon.store.repositories.closing_notifications import IN_FLIGHT_SECONDS

GRPO = RunKey("math", "grpo")
LATER = NOW + 100.0


@pytest.fixture
def run_id(store: Store) -> int:
    """A run whose alert has fired and was put into the outbox for "pager" and for "hook"."""
    [receipt] = append(store, start_intake())
    firing = alert(run_id=receipt.run_id)
    put(store, receipt.run_id, AlertState.FIRING, "pager", "hook")
    commit(store, receipt.run_id, alerts=(firing,))
    return receipt.run_id


def put(store: Store, run_id: int, state: AlertState, *receivers: str) -> None:
    """Put what tells of the alert's state into the outbox."""
    said = replace(alert(run_id=run_id), state=state)
    body = notification_body(
        said,
        transition_event(said),
        reason=TransitionReason.FIRED,
        run=store.runs.by_id(run_id),
        public_url="https://x",
    )
    deliveries = (
        Delivery(
            id=0,
            receiver=receiver,
            dedup_key=f"{receiver}:{state.value}",
            body=body,
            due_at=NOW,
            made_at=NOW,
            run_id=run_id,
            episode=said.episode,
            told_state=state,
        )
        for receiver in receivers
    )
    commit(store, run_id, deliveries=tuple(deliveries))


def settle(store: Store, how: str, receiver: str) -> None:
    """Let what waits for a receiver become so."""
    store.outbox.settle(
        [_settlement(one, how) for one in store.outbox.due(now=LATER) if one.receiver == receiver],
    )


def _settlement(one: Delivery, how: str) -> Settlement:
    if how == "failed":
        return settle_failed(
            one, now=NOW, error="503", tries=RetryPolicy(max_attempts=9, backoff_seconds=1.0), may_succeed=True
        )
    if how == "silenced":
        return settle_muted(one, now=NOW, reason=MuteReason.SILENCED)
    return settle_sent(one, now=NOW, again_after_seconds=3600.0 if how == "standing" else None)


def left(store: Store, *, now: float = LATER) -> list[tuple[str, str]]:
    """Delete the run, and return what is due of the outbox by receiver."""
    store.runs.delete(GRPO, access=EVERYTHING, now=LATER)
    due = store.outbox.due(now=now)
    assert all(one.run_id is None for one in due)
    return sorted((one.receiver, one.told_state.value) for one in due)


def test_receivers_that_were_told_are_told_that_it_is_over_as_the_alert_was_named(store: Store, run_id: int) -> None:
    settle(store, "told", "pager")
    settle(store, "standing", "hook")
    assert left(store) == [("hook", "resolved"), ("pager", "resolved")]
    [one, _] = store.outbox.due(now=LATER)
    assert (one.state, one.made_at, one.body["alert"]["at"]) == (DeliveryState.DUE, LATER, LATER)
    assert (one.body["status"], one.body["reason"]) == ("resolved", "the run was deleted")
    assert (one.body["run"]["project"], one.body["run"]["run"], one.body["url"]) == ("math", "grpo", None)
    assert one.body["alert"]["identity"] == "corrupt_logprobs"
    assert run_id


@pytest.mark.usefixtures("run_id")
def test_a_failed_try_may_have_arrived(store: Store) -> None:
    settle(store, "failed", "pager")
    settle(store, "silenced", "hook")
    assert left(store) == [("pager", "resolved")]


@pytest.mark.usefixtures("run_id")
def test_what_may_be_on_its_way_is_answered_after_it(store: Store) -> None:
    settle(store, "silenced", "hook")
    assert left(store) == []
    assert [one.receiver for one in store.outbox.due(now=LATER + IN_FLIGHT_SECONDS)] == ["pager"]


def test_an_end_that_waits_to_be_told_is_told_and_one_that_was_is_not_again(store: Store, run_id: int) -> None:
    settle(store, "told", "pager")
    settle(store, "told", "hook")
    put(store, run_id, AlertState.RESOLVED, "pager", "hook", "mail")
    settle(store, "told", "hook")
    assert left(store) == [("pager", "resolved")]
    [waiting] = store.outbox.due(now=LATER)
    assert waiting.dedup_key == "pager:resolved"

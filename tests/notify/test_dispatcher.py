"""The dispatcher over a real outbox: it retries, gives up, mutes, repeats, isolates receivers, keeps to its slots."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from tests.domain.alerts.alert_builders import notification_of
from tests.fixtures.waiting import eventually
from tests.notify.posting import DELIVERED, ScriptedReceiver, put
from tests.store.builders import alert, append, commit, delivery_states, execute, start_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import ENDED_LABEL, INCIDENT_RULE, Acknowledgement, Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy, Routes
from trmon.domain.alerts.muting import LATE_SECONDS, DeliveryUpdate, MuteReason
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import NotReady
from trmon.domain.ownership import Fences, Ownership
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.notify.dispatcher import MAX_DUE, THREADS_PER_RECEIVER, DeliveryPolicy, Dispatcher
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver
from trmon.store import Store
from trmon.store.schema import tables

Start = Callable[[dict[str, Receiver]], Dispatcher]


REMIND_SECONDS = 0.2
RETRY = DeliveryResult(DeliveryOutcome.RETRY, "answered 503")


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def start(store: Store, counts: Counter[str]) -> Iterator[Start]:
    started: list[Dispatcher] = []

    def start_dispatcher(receivers: dict[str, Receiver]) -> Dispatcher:
        policy = DeliveryPolicy(
            routes=Routes(receivers=tuple(receivers)),
            retry=RetryPolicy(max_attempts=3, backoff_seconds=0.01),
            remind_seconds=REMIND_SECONDS,
        )
        dispatcher = Dispatcher(
            store.outbox,
            receivers,
            ownership=Ownership(),
            policy=policy,
            count=lambda outcome: counts.update([outcome]),
        )
        dispatcher.start()
        started.append(dispatcher)
        return dispatcher

    yield start_dispatcher
    for dispatcher in started:
        dispatcher.close()


def wait_for_states(store: Store, **expected: int) -> None:
    """Wait until the outbox holds these numbers of deliveries by state."""
    eventually(lambda: delivery_states(store), lambda counts: counts == expected)


def test_a_due_delivery_is_delivered_once(store: Store, start: Start, counts: Counter[str]) -> None:
    receiver = ScriptedReceiver(DELIVERED)
    dispatcher = start({"webhook": receiver})
    put(store, "a", "b")
    put(store, "a")
    dispatcher.wake()
    wait_for_states(store, delivered=2)
    assert sorted(receiver.keys) == ["a", "b"]
    eventually(lambda: dict(counts), lambda found: found == {"delivered": 2})


@pytest.mark.parametrize(
    ("results", "state", "counted"),
    [
        pytest.param([RETRY, RETRY, DELIVERED], "delivered", {"retried": 2, "delivered": 1}, id="retried"),
        pytest.param([RETRY], "dead", {"retried": 2, "dead": 1}, id="failed too often"),
        pytest.param([DeliveryResult(DeliveryOutcome.REFUSED, "answered 404")], "dead", {"dead": 1}, id="refused"),
        pytest.param([], "dead", {"dead": 1}, id="its receiver was removed"),
    ],
)
def test_a_delivery_that_fails_is_retried_or_dead_and_counted(
    store: Store, start: Start, counts: Counter[str], results: list[DeliveryResult], state: str, counted: dict[str, int]
) -> None:
    put(store, "a")
    start({"webhook": ScriptedReceiver(*results)} if results else {})
    wait_for_states(store, **{state: 1})
    eventually(lambda: dict(counts), lambda found: found == counted)


def test_a_notification_that_cannot_be_rendered_is_retried_and_then_dead(
    store: Store, start: Start, counts: Counter[str]
) -> None:
    class Broken(ScriptedReceiver):
        def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
            super().deliver(notifications, now=now)
            raise KeyError("summary")

    put(store, "a", receiver="broken")
    put(store, "b")
    broken = Broken(DELIVERED)
    start({"broken": broken, "webhook": ScriptedReceiver(DELIVERED)})
    wait_for_states(store, dead=1, delivered=1)
    eventually(lambda: dict(counts), lambda found: found == {"error": 3, "retried": 2, "dead": 1, "delivered": 1})
    assert broken.calls == 3


def test_a_receiver_that_hangs_delays_no_other(store: Store, start: Start) -> None:
    hold = threading.Event()
    slow, quick = ScriptedReceiver(DELIVERED, hold=hold), ScriptedReceiver(DELIVERED)
    put(store, *(f"slow-{i}" for i in range(20)), receiver="slow")
    start({"slow": slow, "quick": quick})
    eventually(lambda: slow.keys)
    put(store, *(f"quick-{i}" for i in range(20)), receiver="quick")
    eventually(lambda: delivery_states(store), lambda counts: counts["delivered"] == 20)
    assert len(slow.keys) <= 2
    hold.set()
    wait_for_states(store, delivered=40)
    assert len(set(slow.keys)) == len(slow.keys) == 20


def test_deliveries_that_wait_for_a_receiver_that_hangs_are_not_read_again(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, sizes = store.outbox.due, list[int]()

    def counted_due(**arguments: Any) -> list[Delivery]:
        deliveries = due(**arguments)
        sizes.append(len(deliveries))
        return deliveries

    monkeypatch.setattr(store.outbox, "due", counted_due)
    hold = threading.Event()
    put(store, *(f"slow-{i}" for i in range(3 * MAX_DUE)), receiver="slow")
    dispatcher = start({"slow": ScriptedReceiver(DELIVERED, hold=hold), "quick": ScriptedReceiver(DELIVERED)})
    eventually(lambda: sizes)
    put(store, *(f"quick-{i}" for i in range(3)), receiver="quick")
    dispatcher.wake()
    eventually(lambda: delivery_states(store), lambda counts: counts["delivered"] == 3)
    hold.set()
    assert max(sizes) <= MAX_DUE


@pytest.fixture
def firing(store: Store) -> Alert:
    """A firing alert of a run."""
    [receipt] = append(store, start_intake(), now=time.time())
    return set_alert(store, alert(run_id=receipt.run_id))


def set_alert(store: Store, changed: Alert) -> Alert:
    commit(store, changed.run_id, alerts=(changed,))
    return changed


def notify(store: Store, of: Alert, *, key: str = "", late_seconds: float = 0.0) -> None:
    """Put a delivery of an alert's state into the outbox, under that state as its key."""
    delivery = Delivery(
        id=0,
        receiver="webhook",
        dedup_key=key or of.state.value,
        notification=notification_of(of),
        due_at=time.time(),
        made_at=time.time() - late_seconds,
        run_id=of.run_id,
        episode=of.episode,
        told_state=of.state,
    )
    commit(store, of.run_id, deliveries=(delivery,))


def mute_reasons(store: Store) -> list[str | None]:
    return [listed.muted for listed in store.deliveries.list(access=EVERYTHING, state=DeliveryState.MUTED).items]


def test_a_receiver_that_needs_repeats_gets_them_until_the_alert_resolves(
    store: Store, start: Start, firing: Alert
) -> None:
    receiver = ScriptedReceiver(DELIVERED, repeat_seconds=0.01)
    start({"webhook": receiver})
    notify(store, firing)
    eventually(lambda: len(receiver.keys) >= 3)
    assert receiver.keys[:3] == ["firing", "firing:1", "firing:2"]
    notify(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    wait_for_states(store, delivered=2)
    assert receiver.keys.count("resolved") == 1


def test_the_end_is_delivered_if_the_process_ended_before_it_recorded_that_the_start_was_sent(
    store: Store, start: Start, firing: Alert, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = ScriptedReceiver(DELIVERED)
    with monkeypatch.context() as ending:
        ending.setattr(store.outbox, "record", Mock(side_effect=NotReady("the process has ended")))
        notify(store, firing, late_seconds=LATE_SECONDS)
        dispatcher = start({"webhook": receiver})
        eventually(lambda: receiver.keys)
        dispatcher.close()
    notify(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    start({"webhook": receiver})
    wait_for_states(store, delivered=1, muted=1)
    assert receiver.keys == ["firing", "resolved"]


def test_how_a_run_ends_is_told_if_its_incident_was_being_sent_when_it_finished(
    store: Store, start: Start, firing: Alert
) -> None:
    incident = set_alert(store, replace(firing, rule=INCIDENT_RULE, severity=Severity.WARN))
    notify(store, incident)
    hold = threading.Event()
    receiver = ScriptedReceiver(DELIVERED, hold=hold)
    start({"webhook": receiver})
    eventually(lambda: receiver.keys)
    try:
        commit(store, incident.run_id, state=RunState.FINISHED)
        over = replace(incident, state=AlertState.RESOLVED, labels={ENDED_LABEL: "finished with an open warning"})
        notify(store, set_alert(store, over))
    finally:
        hold.set()
    wait_for_states(store, delivered=2)
    assert receiver.keys == ["firing", "resolved"]


def test_due_alerts_of_a_run_are_sent_in_one_message(store: Store, start: Start, firing: Alert) -> None:
    other = set_alert(store, replace(firing, identity="1/stalled", rule="stalled"))
    notify(store, firing)
    notify(store, other, key="other")
    receiver = ScriptedReceiver(RETRY, DELIVERED)
    start({"webhook": receiver})
    eventually(lambda: receiver.calls == 2)
    assert receiver.keys[:4] == ["firing", "other"] * 2


def stall_of(store: Store, run: str) -> Alert:
    """A firing alert that a run stalled."""
    [receipt] = append(store, start_intake(run=run), now=time.time())
    stalled = alert(run_id=receipt.run_id, identity=f"{receipt.run_id}/stalled", rule="stalled")
    return set_alert(store, stalled)


def test_stalls_of_several_runs_are_one_message_without_the_muted_ones(store: Store, start: Start) -> None:
    stalls = [stall_of(store, run) for run in ("a", "b", "c", "d")]
    ack(store, stalls[1])
    for stalled in stalls:
        notify(store, stalled, key=stalled.identity)
    receiver = ScriptedReceiver(RETRY, DELIVERED)
    start({"webhook": receiver})
    wait_for_states(store, standing=3, muted=1)
    told = [stalls[i].identity for i in (0, 2, 3)]
    assert receiver.keys[:6] == told * 2
    assert mute_reasons(store) == [MuteReason.ACKNOWLEDGED.value]


def test_the_end_is_delivered_after_the_start_however_often_that_fails(
    store: Store, start: Start, firing: Alert
) -> None:
    receiver = ScriptedReceiver(RETRY, RETRY, DELIVERED)
    notify(store, firing)
    start({"webhook": receiver})
    eventually(lambda: receiver.keys)
    notify(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    wait_for_states(store, delivered=2)
    assert receiver.keys == ["firing"] * 3 + ["resolved"]


def ack(store: Store, of: Alert) -> None:
    store.alerts.acknowledge(
        of.identity, Acknowledgement(author="ana", note="", at=time.time()), access=EVERYTHING
    ).result()


def test_a_page_is_repeated_until_it_is_acknowledged(store: Store, start: Start, firing: Alert) -> None:
    receiver = ScriptedReceiver(DELIVERED)
    start({"webhook": receiver})
    notify(store, firing)
    eventually(lambda: len(receiver.keys) >= 2)
    ack(store, firing)
    wait_for_states(store, delivered=2)
    assert receiver.keys[:2] == ["firing", "firing:1"]
    assert ":acknowledged:" in receiver.keys[-1]


def test_a_delivery_that_was_not_attempted_waits_for_the_next_dispatcher(store: Store, start: Start) -> None:
    receiver = ScriptedReceiver(DELIVERED)
    start({"webhook": receiver}).close()
    assert receiver.closed
    put(store, "a")
    assert delivery_states(store)["due"] == 1
    start({"webhook": ScriptedReceiver(DELIVERED)})
    wait_for_states(store, delivered=1)


def test_a_delivery_is_not_sent_again_while_its_result_cannot_be_written(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, calls = store.outbox.record, 0

    def record_on_a_full_disk(updates: Sequence[DeliveryUpdate], *, fences: Fences | None = None) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise NotReady("database or disk is full")
        record(updates, fences=fences)

    monkeypatch.setattr(store.outbox, "record", record_on_a_full_disk)
    put(store, "a")
    receiver = ScriptedReceiver(DELIVERED)
    start({"webhook": receiver})
    wait_for_states(store, delivered=1)
    assert (calls, receiver.calls) == (3, 1)


def test_a_notification_that_cannot_be_decoded_is_dead_and_the_others_are_delivered(store: Store, start: Start) -> None:
    put(store, "broken", "whole")
    broken = sa.update(tables.delivery).where(tables.delivery.c.dedup_key == "broken").values(body={"status": "firing"})
    execute(store, broken)
    receiver = ScriptedReceiver(DELIVERED)
    start({"webhook": receiver})
    wait_for_states(store, dead=1, delivered=1)
    assert receiver.keys == ["whole"]


class Owner(Ownership):
    """Owns the given slots."""

    def __init__(self, fences: Fences) -> None:
        self.held = fences

    def fences(self) -> Fences:
        return self.held


@pytest.fixture
def fleets_store(postgres_url: str) -> Iterator[Store]:
    with closing(Store.open(postgres_url)) as store:
        yield store


def start_owned(store: Store, receiver: Receiver, *, owner: Owner) -> tuple[Dispatcher, list[str]]:
    """Start a dispatcher of a fleet; return it and what it counts."""
    policy = DeliveryPolicy(
        routes=Routes(receivers=("webhook",)),
        retry=RetryPolicy(max_attempts=3, backoff_seconds=60.0),
        remind_seconds=60.0,
    )
    outcomes: list[str] = []
    dispatcher = Dispatcher(store.outbox, {"webhook": receiver}, ownership=owner, policy=policy, count=outcomes.append)
    dispatcher.start()
    return dispatcher, outcomes


@pytest.mark.server("postgres")
def test_a_process_that_does_not_know_yet_that_it_has_lost_its_slot_sends_nothing(fleets_store: Store) -> None:
    one, two = fleets_store.leases("one", lease_seconds=10.0), fleets_store.leases("two", lease_seconds=10.0)
    fences, receiver = dict(one.renew().fences), ScriptedReceiver(DELIVERED)
    one.release(fences)
    two.renew()
    put(fleets_store, "0")
    dispatcher, outcomes = start_owned(fleets_store, receiver, owner=Owner(fences))
    eventually(lambda: "error" in outcomes)
    dispatcher.close()
    assert (receiver.keys, delivery_states(fleets_store)["due"]) == ([], 1)


@pytest.mark.server("postgres")
def test_a_process_that_has_lost_its_slot_after_sending_records_nothing(fleets_store: Store) -> None:
    one, two = fleets_store.leases("one", lease_seconds=10.0), fleets_store.leases("two", lease_seconds=10.0)
    fences, hold = dict(one.renew().fences), threading.Event()
    put(fleets_store, "0")
    receiver = ScriptedReceiver(DELIVERED, hold=hold)
    dispatcher, outcomes = start_owned(fleets_store, receiver, owner=Owner(fences))
    eventually(lambda: len(receiver.keys) == 1)
    one.release(fences)
    two.renew()
    hold.set()
    eventually(lambda: "error" in outcomes)
    dispatcher.close()
    assert (len(receiver.keys), delivery_states(fleets_store)["due"]) == (1, 1)


@pytest.mark.server("postgres")
def test_a_delivery_whose_slot_is_lost_while_it_waits_is_left_to_the_new_owner(fleets_store: Store) -> None:
    owner, hold = Owner(dict(fleets_store.leases("one", lease_seconds=10.0).renew().fences)), threading.Event()
    receiver = ScriptedReceiver(DELIVERED, hold=hold)
    put(fleets_store, *map(str, range(3 * THREADS_PER_RECEIVER)))
    dispatcher, _ = start_owned(fleets_store, receiver, owner=owner)
    eventually(lambda: len(receiver.keys) == THREADS_PER_RECEIVER)
    owner.held = {}
    hold.set()
    eventually(lambda: delivery_states(fleets_store)["delivered"] == THREADS_PER_RECEIVER)
    dispatcher.close()
    assert len(receiver.keys) == THREADS_PER_RECEIVER

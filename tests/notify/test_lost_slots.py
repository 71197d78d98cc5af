"""The dispatchers of several processes: ownership is checked when a delivery is sent, not only when it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence

import pytest

from tests.domain.alerts.alert_builders import notification_of
from tests.fixtures.waiting import eventually
from trmon.domain.alerts.delivery import Delivery, RetryPolicy, Routes
from trmon.domain.alerts.notification import Notification
from trmon.domain.ports import Fences
from trmon.notify.delivery_attempt import DeliveryPolicy
from trmon.notify.dispatcher import THREADS_PER_RECEIVER, Dispatcher
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult
from trmon.store import Store
from trmon.store.rows.alerts import write_deliveries

pytestmark = pytest.mark.server("postgres")


POLICY = DeliveryPolicy(
    routes=Routes(receivers=("pager",)),
    retry=RetryPolicy(max_attempts=3, backoff_seconds=60.0),
    remind_seconds=60.0,
)


class Owner:
    """Owns the given slots; implements trmon.domain.ports.Ownership."""

    def __init__(self, fences: Fences) -> None:
        self.held = fences

    def fences(self) -> Fences:
        return self.held

    def surplus(self) -> frozenset[int]:
        return frozenset()

    def release(self, slots: Collection[int]) -> None:
        pass


class BlockedReceiver:
    """A receiver that blocks until `released` is set."""

    is_grouping = True
    merges_runs = True
    repeat_seconds = None

    def __init__(self) -> None:
        self.released = threading.Event()
        self.keys: list[str] = []

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        self.keys += [notification.key for notification in notifications]
        self.released.wait()
        return DeliveryResult(DeliveryOutcome.DELIVERED)

    def close(self) -> None:
        pass


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = Store.open(postgres_url)
    yield store
    store.close()


def put(store: Store, *, n: int) -> None:
    """Put deliveries without a run into the outbox."""
    due = [
        Delivery(id=0, receiver="pager", dedup_key=f"{i}", notification=notification_of(), due_at=time.time())
        for i in range(n)
    ]
    store.writer.submit(lambda transaction: write_deliveries(transaction.connection, due)).result()


def test_a_process_that_does_not_know_yet_that_it_has_lost_its_slot_sends_nothing(store: Store) -> None:
    one, two = store.leases("one"), store.leases("two")
    fences, receiver = dict(one.renew().fences), BlockedReceiver()
    receiver.released.set()
    one.release(fences)
    two.renew()
    put(store, n=1)
    failures: list[str] = []
    dispatcher = Dispatcher(
        store.outbox, {"pager": receiver}, ownership=Owner(fences), policy=POLICY, count=failures.append
    )
    dispatcher.start()
    eventually(lambda: "error" in failures)
    dispatcher.close()
    assert (receiver.keys, store.outbox.counts()["due"]) == ([], 1)


def test_a_process_that_has_lost_its_slot_after_sending_records_nothing(store: Store) -> None:
    one, two = store.leases("one"), store.leases("two")
    fences = dict(one.renew().fences)
    put(store, n=1)
    receiver, failures = BlockedReceiver(), list[str]()
    dispatcher = Dispatcher(
        store.outbox, {"pager": receiver}, ownership=Owner(fences), policy=POLICY, count=failures.append
    )
    dispatcher.start()
    eventually(lambda: len(receiver.keys) == 1)
    one.release(fences)
    two.renew()
    receiver.released.set()
    eventually(lambda: "error" in failures)
    dispatcher.close()
    assert (len(receiver.keys), store.outbox.counts()["due"]) == (1, 1)


def test_a_delivery_whose_slot_is_lost_while_it_waits_is_left_to_the_new_owner(store: Store) -> None:
    fences = dict(store.leases("one").renew().fences)
    owner, receiver = Owner(fences), BlockedReceiver()
    dispatcher = Dispatcher(store.outbox, {"pager": receiver}, ownership=owner, policy=POLICY, count=lambda _: None)
    put(store, n=3 * THREADS_PER_RECEIVER)
    dispatcher.start()
    eventually(lambda: len(receiver.keys) == THREADS_PER_RECEIVER)
    owner.held = {}
    receiver.released.set()
    eventually(lambda: store.outbox.counts()["delivered"] == THREADS_PER_RECEIVER)
    dispatcher.close()
    assert len(receiver.keys) == THREADS_PER_RECEIVER

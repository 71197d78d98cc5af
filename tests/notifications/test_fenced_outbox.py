"""The outbox of one process of several: ownership is checked when a delivery is sent, not only when it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence

import pytest

from tests.domain.alerts.alert_builders import notification_of
from tests.fixtures.waiting import eventually
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import Notification
from trmon.domain.alerts.retry import RetryPolicy
from trmon.domain.alerts.routing import Routes
from trmon.domain.model.slots import Fences
from trmon.notifications.delivery_attempt import DeliveryPolicy
from trmon.notifications.dispatcher import THREADS_PER_RECEIVER, Dispatcher
from trmon.notifications.fenced_outbox import FencedOutbox
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult
from trmon.store import Store
from trmon.store.rows.alert_rows import write_deliveries

pytestmark = pytest.mark.server("postgres")


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


def test_a_delivery_whose_slot_is_lost_while_it_waits_is_left_to_the_new_owner(store: Store) -> None:
    fences = dict(store.leases("one").renew().fences)
    owner, receiver = Owner(fences), BlockedReceiver()
    outbox, receivers = FencedOutbox(store.outbox, owner), {"pager": receiver}
    policy = DeliveryPolicy(
        routes=Routes(receivers=("pager",)),
        retry=RetryPolicy(max_attempts=3, backoff_seconds=60.0),
        remind_seconds=60.0,
    )
    dispatcher = Dispatcher(outbox, receivers, policy=policy, count=lambda _: None)
    due = [
        Delivery(id=0, receiver="pager", dedup_key=f"{n}", notification=notification_of(), due_at=time.time())
        for n in range(3 * THREADS_PER_RECEIVER)
    ]
    store.writer.submit(lambda transaction: write_deliveries(transaction.connection, due)).result()
    dispatcher.start()
    eventually(lambda: len(receiver.keys) == THREADS_PER_RECEIVER)
    owner.held = {}
    receiver.released.set()
    eventually(lambda: store.outbox.counts()["delivered"] == THREADS_PER_RECEIVER)
    dispatcher.close()
    assert len(receiver.keys) == THREADS_PER_RECEIVER

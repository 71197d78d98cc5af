"""The outbox of one process among several: what it tells is its own when it is told, not only when it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence

import pytest

from tests.fixtures.waiting import eventually
from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.routing import Routes
from trmon.domain.alerts.settlement import RetryPolicy
from trmon.domain.model.slots import Fences
from trmon.notifications.dispatcher import Dispatcher
from trmon.notifications.fenced_outbox import FencedOutbox
from trmon.notifications.notifier import THREADS_PER_RECEIVER, Notifier
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult
from trmon.store import Store
from trmon.store.rows.alert_rows import write_deliveries

pytestmark = pytest.mark.server("postgres")


class Owner:
    """Owns what it is told to; implements trmon.domain.ports.Ownership."""

    def __init__(self, fences: Fences) -> None:
        self.held = fences

    def fences(self) -> Fences:
        return self.held

    def surplus(self) -> frozenset[int]:
        return frozenset()

    def release(self, slots: Collection[int]) -> None:
        pass


class Waiting:
    """A receiver that takes what it is given once it may."""

    is_grouping = True
    repeat_seconds = None

    def __init__(self) -> None:
        self.hold = threading.Event()
        self.seen: list[str] = []

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
        self.seen += [delivery.key for delivery in deliveries]
        self.hold.wait()
        return DeliveryResult(DeliveryOutcome.DELIVERED)

    def close(self) -> None:
        pass


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = Store.open(postgres_url)
    yield store
    store.close()


def test_what_was_lost_while_it_waited_for_its_receiver_is_left_to_who_has_it_now(store: Store) -> None:
    fences = dict(store.leases("one").renew().fences)
    owner, receiver = Owner(fences), Waiting()
    outbox, receivers = FencedOutbox(store.outbox, owner), {"pager": receiver}
    dispatcher = Dispatcher(
        outbox,
        receivers,
        tries=RetryPolicy(max_attempts=3, backoff_seconds=60.0),
        routes=Routes(receivers=("pager",)),
        remind_seconds=60.0,
        count=lambda _: None,
    )
    notifier = Notifier(outbox, receivers, dispatcher=dispatcher, count=lambda _: None)
    due = [
        Delivery(id=0, receiver="pager", dedup_key=f"{n}", body={}, due_at=time.time())
        for n in range(3 * THREADS_PER_RECEIVER)
    ]
    store.writer.submit(lambda transaction: write_deliveries(transaction.connection, due)).result()
    notifier.start()
    eventually(lambda: len(receiver.seen) == THREADS_PER_RECEIVER)
    owner.held = {}
    receiver.hold.set()
    eventually(lambda: store.outbox.counts()["delivered"] == THREADS_PER_RECEIVER)
    notifier.close()
    assert len(receiver.seen) == THREADS_PER_RECEIVER

"""The dispatchers of several processes: ownership is checked when a delivery is sent, not only when it is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.fixtures.waiting import eventually
from tests.notify.posting import DELIVERED, ScriptedReceiver, put
from tests.store.builders import delivery_states
from trmon.domain.alerts.delivery import RetryPolicy, Routes
from trmon.domain.ownership import Fences, Ownership
from trmon.notify.dispatcher import THREADS_PER_RECEIVER, DeliveryPolicy, Dispatcher
from trmon.store import Store

pytestmark = pytest.mark.server("postgres")


POLICY = DeliveryPolicy(
    routes=Routes(receivers=("pager",)),
    retry=RetryPolicy(max_attempts=3, backoff_seconds=60.0),
    remind_seconds=60.0,
)


class Owner(Ownership):
    """Owns the given slots."""

    def __init__(self, fences: Fences) -> None:
        self.held = fences

    def fences(self) -> Fences:
        return self.held


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    store = Store.open(postgres_url)
    yield store
    store.close()


def test_a_process_that_does_not_know_yet_that_it_has_lost_its_slot_sends_nothing(store: Store) -> None:
    one, two = store.leases("one"), store.leases("two")
    fences, receiver = dict(one.renew().fences), ScriptedReceiver(DELIVERED)
    one.release(fences)
    two.renew()
    put(store, "0", receiver="pager")
    failures: list[str] = []
    dispatcher = Dispatcher(
        store.outbox, {"pager": receiver}, ownership=Owner(fences), policy=POLICY, count=failures.append
    )
    dispatcher.start()
    eventually(lambda: "error" in failures)
    dispatcher.close()
    assert (receiver.keys, delivery_states(store)["due"]) == ([], 1)


def test_a_process_that_has_lost_its_slot_after_sending_records_nothing(store: Store) -> None:
    one, two = store.leases("one"), store.leases("two")
    fences = dict(one.renew().fences)
    put(store, "0", receiver="pager")
    hold, failures = threading.Event(), list[str]()
    receiver = ScriptedReceiver(DELIVERED, hold=hold)
    dispatcher = Dispatcher(
        store.outbox, {"pager": receiver}, ownership=Owner(fences), policy=POLICY, count=failures.append
    )
    dispatcher.start()
    eventually(lambda: len(receiver.keys) == 1)
    one.release(fences)
    two.renew()
    hold.set()
    eventually(lambda: "error" in failures)
    dispatcher.close()
    assert (len(receiver.keys), delivery_states(store)["due"]) == (1, 1)


def test_a_delivery_whose_slot_is_lost_while_it_waits_is_left_to_the_new_owner(store: Store) -> None:
    fences = dict(store.leases("one").renew().fences)
    owner, hold = Owner(fences), threading.Event()
    receiver = ScriptedReceiver(DELIVERED, hold=hold)
    dispatcher = Dispatcher(store.outbox, {"pager": receiver}, ownership=owner, policy=POLICY, count=lambda _: None)
    put(store, *map(str, range(3 * THREADS_PER_RECEIVER)), receiver="pager")
    dispatcher.start()
    eventually(lambda: len(receiver.keys) == THREADS_PER_RECEIVER)
    owner.held = {}
    hold.set()
    eventually(lambda: delivery_states(store)["delivered"] == THREADS_PER_RECEIVER)
    dispatcher.close()
    assert len(receiver.keys) == THREADS_PER_RECEIVER

"""The notifier over a real outbox: tries again, gives up, and lets no receiver wait for another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.waiting import eventually
from tests.store.builders import alert, append, commit, start_intake
from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertState, Delivery, DeliveryState
from trmon.domain.alerts.muting import MuteReason
from trmon.domain.alerts.routing import Routes
from trmon.domain.alerts.settlement import RetryPolicy, Settlement
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.errors import NotReady
from trmon.domain.model.severity import Severity
from trmon.domain.model.slots import Fences
from trmon.notifications.dispatcher import Dispatcher
from trmon.notifications.fenced_outbox import FencedOutbox
from trmon.notifications.notifier import MAX_DUE, Notifier
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult, Receiver
from trmon.runner.ownership import SoleOwner
from trmon.store import Store
from trmon.store.rows.alert_rows import write_deliveries

Start = Callable[[dict[str, Receiver]], Notifier]


class Answering:
    """A receiver that answers as it is told, the last answer again and again; waits where it is told to."""

    is_grouping = True

    def __init__(
        self, *results: DeliveryResult, hold: threading.Event | None = None, repeat_seconds: float | None = None
    ) -> None:
        self.results = list(results)
        self.repeat_seconds = repeat_seconds
        self.calls = 0
        self.seen: list[str] = []
        self.bodies: list[dict[str, object]] = []
        self.hold = hold
        self.closed = False

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
        self.calls += 1
        self.seen += [delivery.key for delivery in deliveries]
        self.bodies += [delivery.body for delivery in deliveries]
        if self.hold is not None:
            self.hold.wait()
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    def close(self) -> None:
        self.closed = True


REMIND_SECONDS = 0.2
DELIVERED = DeliveryResult(DeliveryOutcome.DELIVERED)
RETRY = DeliveryResult(DeliveryOutcome.RETRY, "answered 503")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'trmon.sqlite'}")
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def start(store: Store, counts: Counter[str]) -> Iterator[Start]:
    started: list[Notifier] = []

    def begin(receivers: dict[str, Receiver]) -> Notifier:
        tries = RetryPolicy(max_attempts=3, backoff_seconds=0.01)

        def count(outcome: str) -> None:
            counts.update([outcome])

        routes = Routes(receivers=tuple(receivers))
        outbox = FencedOutbox(store.outbox, SoleOwner())
        dispatcher = Dispatcher(
            outbox, receivers, tries=tries, routes=routes, remind_seconds=REMIND_SECONDS, count=count
        )
        notifier = Notifier(outbox, receivers, dispatcher=dispatcher, count=count)
        notifier.start()
        started.append(notifier)
        return notifier

    yield begin
    for notifier in started:
        notifier.close()


def put(store: Store, *keys: str, receiver: str = "webhook") -> None:
    deliveries = [
        Delivery(id=0, receiver=receiver, dedup_key=key, body={"key": key}, due_at=time.time()) for key in keys
    ]
    store.writer.submit(lambda transaction: write_deliveries(transaction.connection, deliveries)).result()


def settled(store: Store, **expected: int) -> None:
    none = {state.value: 0 for state in DeliveryState}
    eventually(store.outbox.counts, lambda counts: counts == none | expected)


def test_what_is_due_is_delivered_once(store: Store, start: Start, counts: Counter[str]) -> None:
    receiver = Answering(DELIVERED)
    notifier = start({"webhook": receiver})
    put(store, "a", "b")
    put(store, "a")
    notifier.wake()
    settled(store, delivered=2)
    assert sorted(receiver.seen) == ["a", "b"]
    eventually(lambda: dict(counts), lambda found: found == {"delivered": 2})


def test_a_failure_is_tried_again_until_it_is_delivered(store: Store, start: Start, counts: Counter[str]) -> None:
    put(store, "a")
    start({"webhook": Answering(RETRY, RETRY, DELIVERED)})
    settled(store, delivered=1)
    eventually(lambda: dict(counts), lambda found: found == {"retried": 2, "delivered": 1})


def test_after_its_tries_a_delivery_is_given_up(store: Store, start: Start, counts: Counter[str]) -> None:
    put(store, "a")
    start({"webhook": Answering(RETRY)})
    settled(store, dead=1)
    eventually(lambda: dict(counts), lambda found: found == {"retried": 2, "dead": 1})


def test_a_refusal_is_not_tried_again(store: Store, start: Start, counts: Counter[str]) -> None:
    put(store, "a")
    start({"webhook": Answering(DeliveryResult(DeliveryOutcome.REFUSED, "answered 404"))})
    settled(store, dead=1)
    eventually(lambda: dict(counts), lambda found: found == {"dead": 1})


def test_what_cannot_be_said_is_tried_again_later_and_given_up(
    store: Store, start: Start, counts: Counter[str]
) -> None:
    class Broken(Answering):
        def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
            super().deliver(deliveries, now=now)
            raise KeyError("summary")

    put(store, "a", receiver="broken")
    put(store, "b")
    broken = Broken(DELIVERED)
    start({"broken": broken, "webhook": Answering(DELIVERED)})
    settled(store, dead=1, delivered=1)
    eventually(lambda: dict(counts), lambda found: found == {"error": 3, "retried": 2, "dead": 1, "delivered": 1})
    assert broken.calls == 3


def test_a_receiver_that_is_gone_is_given_up(store: Store, start: Start) -> None:
    put(store, "a", receiver="pager")
    start({"webhook": Answering(DELIVERED)})
    settled(store, dead=1)


def test_a_receiver_that_hangs_delays_no_other(store: Store, start: Start) -> None:
    hold = threading.Event()
    slow, quick = Answering(DELIVERED, hold=hold), Answering(DELIVERED)
    put(store, *(f"slow-{i}" for i in range(20)), receiver="slow")
    start({"slow": slow, "quick": quick})
    eventually(lambda: slow.seen)
    put(store, *(f"quick-{i}" for i in range(20)), receiver="quick")
    eventually(store.outbox.counts, lambda counts: counts["delivered"] == 20)
    assert len(slow.seen) <= 2
    hold.set()
    settled(store, delivered=40)
    assert len(set(slow.seen)) == len(slow.seen) == 20


def test_what_waits_for_a_receiver_that_hangs_is_not_read_again_and_again(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, looks = store.outbox.due, list[int]()

    def counted(**asked: Any) -> list[Delivery]:
        found = due(**asked)
        looks.append(len(found))
        return found

    monkeypatch.setattr(store.outbox, "due", counted)
    hold = threading.Event()
    put(store, *(f"slow-{i}" for i in range(3 * MAX_DUE)), receiver="slow")
    notifier = start({"slow": Answering(DELIVERED, hold=hold), "quick": Answering(DELIVERED)})
    eventually(lambda: looks)
    put(store, *(f"quick-{i}" for i in range(3)), receiver="quick")
    notifier.wake()
    eventually(store.outbox.counts, lambda counts: counts["delivered"] == 3)
    hold.set()
    assert max(looks) <= MAX_DUE


@pytest.fixture
def firing(store: Store) -> Alert:
    """A firing alert of a run."""
    [receipt] = append(store, start_intake(), now=time.time())
    return set_alert(store, alert(run_id=receipt.run_id))


def set_alert(store: Store, changed: Alert) -> Alert:
    commit(store, changed.run_id, alerts=(changed,))
    return changed


def tell(store: Store, of: Alert, *, key: str = "", late_seconds: float = 0.0) -> None:
    """Put what tells of an alert's state into the outbox, under that state as its key."""
    told = Delivery(
        id=0,
        receiver="webhook",
        dedup_key=key or of.state.value,
        body={},
        due_at=time.time(),
        made_at=time.time() - late_seconds,
        run_id=of.run_id,
        episode=of.episode,
        told_state=of.state,
    )
    commit(store, of.run_id, deliveries=(told,))


def reasons(store: Store) -> list[str | None]:
    return [listed.muted for listed in store.deliveries.list(access=EVERYTHING, state=DeliveryState.MUTED).items]


def test_a_receiver_that_forgets_is_told_again_until_the_alert_has_resolved(
    store: Store, start: Start, firing: Alert
) -> None:
    receiver = Answering(DELIVERED, repeat_seconds=0.01)
    start({"webhook": receiver})
    tell(store, firing)
    eventually(lambda: len(receiver.seen) >= 3)
    assert receiver.seen[:3] == ["firing", "firing:1", "firing:2"]
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    settled(store, delivered=2)
    assert receiver.seen.count("resolved") == 1


def test_an_alert_that_stands_is_never_given_up(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED, *[RETRY] * 5, DELIVERED, repeat_seconds=0.01)
    start({"webhook": receiver})
    tell(store, firing)
    eventually(lambda: len(receiver.seen) >= 8)
    assert store.outbox.counts()["dead"] == 0


def test_what_is_over_before_it_could_be_told_is_told_to_nobody(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED)
    tell(store, firing, late_seconds=120.0)
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    start({"webhook": receiver})
    settled(store, muted=2)
    assert receiver.seen == []
    assert sorted(filter(None, reasons(store))) == sorted([MuteReason.ENDED.value, MuteReason.UNTOLD.value])


def test_what_is_over_within_moments_is_told_in_order(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED)
    tell(store, firing)
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    start({"webhook": receiver})
    settled(store, delivered=2)
    assert receiver.seen == ["firing", "resolved"]


def test_that_it_resolved_is_told_wherever_a_failed_try_may_have_arrived(
    store: Store, start: Start, firing: Alert
) -> None:
    receiver = Answering(RETRY, DELIVERED)
    tell(store, firing)
    notifier = start({"webhook": receiver})
    eventually(lambda: receiver.seen)
    eventually(lambda: store.outbox.delivery_context(firing.run_id, now=0.0).tried)
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    notifier.wake()
    eventually(lambda: "resolved" in receiver.seen)


def test_alerts_of_a_run_that_are_due_together_are_told_together(store: Store, start: Start, firing: Alert) -> None:
    other = set_alert(store, replace(firing, identity="1/stalled", rule="stalled"))
    tell(store, firing)
    tell(store, other, key="other")
    receiver = Answering(RETRY, DELIVERED)
    start({"webhook": receiver})
    eventually(lambda: receiver.calls == 2)
    assert receiver.seen[:4] == ["firing", "other"] * 2


def test_that_it_resolved_is_told_after_that_it_fired_however_often_that_fails(
    store: Store, start: Start, firing: Alert
) -> None:
    receiver = Answering(RETRY, RETRY, DELIVERED)
    tell(store, firing)
    start({"webhook": receiver})
    eventually(lambda: receiver.seen)
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    settled(store, delivered=2)
    assert receiver.seen == ["firing"] * 3 + ["resolved"]


def ack(store: Store, of: Alert) -> None:
    store.alerts.acknowledge(
        of.identity, Acknowledgement(author="ana", note="", at=time.time()), access=EVERYTHING
    ).result()


def test_a_page_is_told_again_until_somebody_acknowledges_it(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED)
    start({"webhook": receiver})
    tell(store, firing)
    eventually(lambda: len(receiver.seen) >= 2)
    ack(store, firing)
    settled(store, delivered=1)
    assert receiver.seen[:2] == ["firing", "firing:1"]


def test_a_receiver_that_forgets_is_told_of_what_is_acknowledged(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED, repeat_seconds=0.01)
    ack(store, firing)
    start({"webhook": receiver})
    tell(store, firing)
    eventually(lambda: len(receiver.seen) >= 3)


def test_a_warning_is_told_once(store: Store, start: Start, firing: Alert) -> None:
    receiver = Answering(DELIVERED)
    start({"webhook": receiver})
    tell(store, set_alert(store, replace(firing, severity=Severity.WARN)))
    settled(store, delivered=1)


def test_what_is_silenced_is_held_with_the_reason_and_its_end_told_to_nobody(
    store: Store, start: Start, firing: Alert
) -> None:
    matcher = Matcher(label="rule", operator=MatchOperator.EQUAL, value=firing.rule)
    now = time.time()
    silence = Silence(id=0, project=None, matchers=(matcher,), author="ana", note="", starts_at=now, ends_at=now + 600)
    store.silences.create(silence).result()
    receiver = Answering(DELIVERED)
    start({"webhook": receiver})
    tell(store, firing)
    settled(store, held=1)
    [held] = store.deliveries.list(access=EVERYTHING, state=DeliveryState.HELD).items
    assert held.muted == MuteReason.SILENCED.value
    tell(store, set_alert(store, replace(firing, state=AlertState.RESOLVED)))
    settled(store, held=1, muted=1)
    assert receiver.seen == []


def test_a_notification_lists_what_fires_on_the_run(store: Store, start: Start, firing: Alert) -> None:
    set_alert(store, replace(firing, identity="1/mask_rate", rule="mask_rate", severity=Severity.WARN))
    receiver = Answering(DELIVERED)
    start({"webhook": receiver})
    tell(store, firing)
    eventually(lambda: receiver.bodies)
    listed = receiver.bodies[0]["firing"]
    assert isinstance(listed, list)
    assert [(alert["rule"], alert["muted"]) for alert in listed] == [
        ("corrupt_logprobs", None),
        ("mask_rate", MuteReason.INHIBITED.value),
    ]


def test_what_was_not_tried_waits_for_the_next_notifier(store: Store, start: Start) -> None:
    receiver = Answering(DELIVERED)
    start({"webhook": receiver}).close()
    assert receiver.closed
    put(store, "a")
    assert store.outbox.counts()["due"] == 1
    start({"webhook": Answering(DELIVERED)})
    settled(store, delivered=1)


def test_what_was_told_is_not_told_again_while_that_cannot_be_written(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failed = store.outbox.settle, 0

    def on_a_full_disk(settlements: Sequence[Settlement], *, fences: Fences | None = None) -> None:
        nonlocal failed
        failed += 1
        if failed < 3:
            raise NotReady("database or disk is full")
        settle(settlements, fences=fences)

    monkeypatch.setattr(store.outbox, "settle", on_a_full_disk)
    put(store, "a")
    receiver = Answering(DELIVERED)
    start({"webhook": receiver})
    settled(store, delivered=1)
    assert (failed, receiver.calls) == (3, 1)

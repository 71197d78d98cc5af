"""Tests two processes that write to one PostgreSQL: each run stays ordered, and both answer as one would."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Event

import pytest

from tests.store.builders import NOW, append, beat, report_intake, start_intake, stored_reports
from tests.store.conftest import ON_POSTGRES
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotFound
from trmon.domain.messages import WriteOutcome
from trmon.domain.pipeline.publish import Event as Said
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.domain.runs.attempts import Resolution
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.writing.group_commit import append_events
from trmon.store.writing.transaction import Transaction

pytestmark = ON_POSTGRES


@pytest.fixture
def stores(migrated_url: str) -> Iterator[tuple[Store, Store]]:
    """Two stores of one database, as in two processes."""
    opened = Store.open(migrated_url), Store.open(migrated_url)
    yield opened
    for store in opened:
        store.close()


def test_a_reader_that_continues_from_the_newest_id_misses_nothing(stores: tuple[Store, Store]) -> None:
    one, other = stores
    [first] = append(one, start_intake(run="grpo"))

    def send(store: Store, rank: int) -> None:
        for step in range(40):
            append(store, *(report_intake(step=step, rank=rank + i, world_size=4) for i in range(2)))

    def read(done: Event) -> list[int]:
        seen: list[int] = []
        while True:
            last = done.is_set()
            found = stored_reports(one, first.run_id, after=seen[-1] if seen else 0)
            seen += [report.id for report in found]
            if last and not found:
                return seen

    done = Event()
    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read, done)
        for sending in [pool.submit(send, one, 0), pool.submit(send, other, 2)]:
            sending.result(60)
        done.set()
        seen = reading.result(60)
    assert len(seen) == len(set(seen)) == 160


def test_a_report_sent_to_both_is_stored_once_and_another_payload_conflicts(stores: tuple[Store, Store]) -> None:
    one, other = stores
    intakes = [report_intake(step=step) for step in range(50)]
    sent = [store.reports.append(intakes, now=NOW) for store in (one, other)]
    for pair in zip(*sent, strict=True):
        assert {future.result(30).status for future in pair} == {WriteOutcome.STORED, WriteOutcome.DUPLICATE}
    [conflict] = append(other, report_intake(step=7, seed=9))
    assert conflict.status is WriteOutcome.CONFLICT


def test_runs_that_start_on_both_at_once_are_created_once(stores: tuple[Store, Store]) -> None:
    runs = [f"run-{i}" for i in range(30)]
    futures = [
        (store, store.reports.append([report_intake(run=run, rank=rank, world_size=2) for run in order], now=NOW))
        for rank, (store, order) in enumerate(zip(stores, (runs, runs[::-1]), strict=True))
    ]
    receipts = [[future.result(30) for future in sent] for _, sent in futures]
    assert [receipt.run_id for receipt in receipts[0]] == [receipt.run_id for receipt in receipts[1][::-1]]
    assert len({receipt.attempt_id for receipt in chain.from_iterable(receipts)}) == 30


def test_each_store_sees_the_launches_of_the_other(stores: tuple[Store, Store]) -> None:
    one, other = stores
    append(one, report_intake(step=1, launch="launch-1"))
    [second] = append(other, report_intake(step=1, launch="launch-2", seed=1))
    [third] = append(one, report_intake(step=2, launch="launch-2", seed=1))
    fork = one.runs.attempts(second.run_id)[1]
    assert second.attempt_id == third.attempt_id == fork.id
    assert fork.fork_reason is Resolution.TWO_TRAINERS


def test_a_heartbeat_to_one_store_keeps_the_attempt_on_the_other(stores: tuple[Store, Store]) -> None:
    one, other = stores
    append(one, report_intake(step=10))
    beat(other, at=NOW + 3600)
    other.writer.submit(lambda _: None).result(30)
    [receipt] = append(one, report_intake(step=11, launch="launch-2"), now=NOW + 3601)
    assert [attempt.name for attempt in one.runs.attempts(receipt.run_id)] == ["a", "a~launch-2"]


def test_after_one_store_renames_or_deletes_a_run_the_other_creates_a_new_one(stores: tuple[Store, Store]) -> None:
    one, other = stores
    [first] = append(one, report_intake(step=1))
    key = other.runs.by_id(first.run_id).key
    other.runs.update(key, access=EVERYTHING, now=NOW, name="renamed").result(30)
    [second] = append(one, report_intake(step=1))
    assert [found.report.step for found in stored_reports(one, first.run_id)] == [1]
    other.runs.delete(key, access=EVERYTHING, now=NOW)
    [third] = append(one, report_intake(step=1))
    assert third.status is WriteOutcome.STORED
    assert len({first.run_id, second.run_id, third.run_id}) == 3
    with pytest.raises(NotFound):
        one.runs.by_id(second.run_id)


def test_run_updates_in_opposite_orders_do_not_deadlock(stores: tuple[Store, Store]) -> None:
    receipts = append(stores[0], *(report_intake(run=f"run-{i}") for i in range(20)))
    ids = [receipt.run_id for receipt in receipts]
    outcomes = {id_: RunUpdate(run_id=id_, last_step=id_, frontier=Frontier(report_id=1)) for id_ in ids}
    both = [(store, order) for _ in range(5) for store, order in zip(stores, (ids, ids[::-1]), strict=True)]
    futures = [future for store, order in both for future in store.run_log.commit([outcomes[id_] for id_ in order])]
    assert [future.result(30) for future in futures] == [None] * 200


def test_events_become_visible_in_id_order(stores: tuple[Store, Store], engines: Engines) -> None:
    one, other = stores
    [receipt] = append(one, report_intake())

    def say(store: Store, kind: str) -> None:
        def add(transaction: Transaction) -> None:
            transaction.events.append((receipt.run_id, Said(kind=kind, data={}, at=NOW)))

        store.writer.submit(add).result(30)

    with ThreadPoolExecutor(1) as pool:
        with engines.writing.begin() as connection:
            append_events(connection, [(receipt.run_id, Said(kind="first", data={}, at=NOW))])
            second = pool.submit(say, other, "second")
            with pytest.raises(TimeoutError):
                second.result(0.3)
            assert other.events.after(0, access=EVERYTHING) == []
        second.result(30)
    assert [stored.event.kind for stored in other.events.after(0, access=EVERYTHING)] == ["first", "second"]

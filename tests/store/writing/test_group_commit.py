"""Tests the writer: ordered, grouped, with isolated failures, and answered only after the commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event, Thread

import pytest
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tests.store.builders import Gate
from trmon.domain.errors import Conflict, NotReady, Overloaded
from trmon.store.database.engines import Engines
from trmon.store.database.upsert import insert_rows
from trmon.store.registry import RunRegistry
from trmon.store.schema import tables
from trmon.store.writing import transaction
from trmon.store.writing.group_commit import PATIENT_SECONDS, CommittedGroup, GroupCommit
from trmon.store.writing.run_locks import RunLocks
from trmon.store.writing.transaction import Operation, Transaction


@pytest.fixture
def engine(engines: Engines) -> Engine:
    return engines.reader


@pytest.fixture
def writer(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupCommit]:
    """A writer with a queue of at most ten operations, whose groups no stall of the machine ends."""
    monkeypatch.setattr(transaction, "MAX_SECONDS", 60.0)
    locks = RunLocks(RunRegistry(live_seconds=90.0)) if engines.is_shared else None
    started = GroupCommit(engines.writing, max_waiting=10, locks=locks)
    started.start()
    yield started
    started.close()


def add(name: str, *, error: Exception | None = None) -> Operation[str]:
    """Return an operation that adds a project and then fails if an error is given."""

    def operation(transaction: Transaction) -> str:
        transaction.connection.execute(insert(tables.project), {"name": name, "created_at": 0.0})
        if error is not None:
            raise error
        return name

    return operation


def projects(engine: Engine) -> list[str]:
    """Return the committed projects in the order of writing."""
    with engine.connect() as connection:
        return list(connection.scalars(select(tables.project.c.name)))


def test_waiting_operations_run_in_order_and_are_committed_together(writer: GroupCommit, engine: Engine) -> None:
    commits: list[CommittedGroup] = []
    writer.on_commit(commits.append)
    with Gate(writer):
        futures = [writer.submit(add(name)) for name in "abc"]
    assert [future.result(10) for future in futures] == ["a", "b", "c"]
    assert projects(engine) == ["a", "b", "c"]
    writer.close()
    assert sum(commit.n_operations for commit in commits) == 4
    assert len(commits) < 4


def test_a_constraint_violation_fails_only_its_own_operation(writer: GroupCommit, engine: Engine) -> None:
    def orphan(transaction: Transaction) -> None:
        rows = [{"run_id": 1, "at": 0.0, "kind": "batch", "data": {}}]
        insert_rows(transaction.connection, tables.event, rows=rows)

    with Gate(writer):
        works = [writer.submit(add("a")), writer.submit(orphan), writer.submit(add("b")), writer.submit(orphan)]
    errors = [work.exception(10) for work in works]
    assert [isinstance(error, IntegrityError) for error in errors] == [False, True, False, True]
    assert projects(engine) == ["a", "b"]
    assert writer.submit(add("c")).result(10) == "c"


@pytest.mark.parametrize("error", [Conflict("no"), ValueError("no")], ids=["an expected error", "an unexpected error"])
def test_rollback_listeners_are_called_when_an_operation_fails(writer: GroupCommit, error: Exception) -> None:
    undone = Event()
    writer.on_rollback(undone.set)
    assert writer.submit(add("bad", error=error)).exception(10) is error
    assert undone.is_set()


def test_a_group_is_written_again_only_after_a_failure(writer: GroupCommit) -> None:
    done: list[str] = []

    def noting(name: str, *, error: Exception | None = None) -> Operation[str]:
        def operation(transaction: Transaction) -> str:
            done.append(name)
            return add(name, error=error)(transaction)

        return operation

    with Gate(writer):
        good = [writer.submit(noting(name)) for name in "ab"]
    assert [future.result(10) for future in good] == done == ["a", "b"]
    with Gate(writer):
        mixed = [writer.submit(noting("c")), writer.submit(noting("d", error=Conflict("no")))]
    assert mixed[0].result(10) == "c"
    assert isinstance(mixed[1].exception(10), Conflict)
    assert done == ["a", "b", "c", "d", "c", "d"]


def test_a_failing_listener_does_not_stop_the_writer(writer: GroupCommit) -> None:
    def fail(_: CommittedGroup) -> None:
        raise RuntimeError("no")

    writer.on_commit(fail)
    assert writer.submit(add("a")).result(10) == "a"
    assert writer.submit(add("b")).result(10) == "b"
    writer.close()


def test_consecutive_items_for_a_handler_are_passed_in_one_call(writer: GroupCommit) -> None:
    calls: list[list[int]] = []

    def double(_: Transaction, items: list[int]) -> list[int]:
        calls.append(list(items))
        return [2 * item for item in items]

    with Gate(writer):
        futures = writer.submit_each(double, [1, 2]) + writer.submit_each(double, [3])
    assert [future.result(10) for future in futures] == [2, 4, 6]
    assert calls == [[1, 2, 3]]


def test_patient_items_join_the_next_group_in_order(writer: GroupCommit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trmon.store.writing.group_commit.PATIENT_SECONDS", 60.0)
    commits: list[CommittedGroup] = []
    writer.on_commit(commits.append)
    [patient] = writer.submit_each(lambda _, items: [*items], ["patient"], is_patient=True)
    assert (writer.depth, writer.is_empty) == (0, False)
    assert writer.submit(add("urgent")).result(10) == "urgent"
    assert (patient.done(), writer.is_empty) == (True, True)
    assert [commit.n_operations for commit in commits] == [2]


def test_patient_items_that_wait_alone_are_committed_after_a_second(writer: GroupCommit) -> None:
    began = time.monotonic()
    futures = [writer.submit_each(lambda _, items: [*items], [i], is_patient=True)[0] for i in range(3)]
    assert [future.result(10) for future in futures] == [0, 1, 2]
    assert time.monotonic() - began >= PATIENT_SECONDS


def test_a_closing_writer_does_not_wait_for_patient_items(writer: GroupCommit) -> None:
    [patient] = writer.submit_each(lambda _, items: [*items], ["patient"], is_patient=True)
    writer.close()
    assert patient.result(0) == "patient"


def test_a_request_without_items_leaves_the_writer_running(writer: GroupCommit) -> None:
    assert writer.submit_each(lambda _, items: [*items], []) == []
    assert writer.submit(add("after")).result(10) == "after"


def test_a_full_queue_refuses_the_whole_request_with_a_retry_time(writer: GroupCommit) -> None:
    with Gate(writer):
        for i in range(8):
            writer.submit(add(str(i)))
        with pytest.raises(Overloaded, match="8 operations wait for the disk; the limit is 10") as refused:
            writer.submit_each(lambda _, items: items, [1, 2, 3])
        assert writer.depth == 8
    assert 1 <= refused.value.retry_after_seconds <= 60


def test_an_operation_cancelled_before_it_starts_is_skipped(writer: GroupCommit, engine: Engine) -> None:
    with Gate(writer):
        gone = writer.submit(add("gone"))
        assert gone.cancel()
        stays = writer.submit(add("stays"))
    assert stays.result(10) == "stays"
    assert projects(engine) == ["stays"]


def test_closing_writes_waiting_operations_and_refuses_new_ones(writer: GroupCommit, engine: Engine) -> None:
    with Gate(writer):
        future = writer.submit(add("last"))
        closing = Thread(target=writer.close)
        closing.start()
    closing.join(10)
    assert future.result(0) == "last"
    with pytest.raises(NotReady, match="shutting down"):
        writer.submit(add("late"))
    assert projects(engine) == ["last"]


def test_a_future_resolves_only_after_the_commit(writer: GroupCommit, engine: Engine) -> None:
    for i in range(50):
        assert writer.submit(add(str(i))).result(10) in projects(engine)

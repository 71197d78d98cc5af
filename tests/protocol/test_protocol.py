"""The protocol holds for random trainers, faults and workers on both databases, and the machine finds known defects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.databases import prepare_database
from tests.protocol.machine import Protocol
from tests.protocol.system import prepare_faults
from trmon.domain.messages import WriteOutcome
from trmon.store.registry import RunRegistry
from trmon.store.repositories import reports, run_log
from trmon.store.repositories.deliveries import Outbox
from trmon.store.repositories.run_log import RunLog
from trmon.store.writing import group_commit
from trmon.store.writing.transaction import WriteGroup
from trmon.worker.recovery import PendingState


@pytest.fixture
def on_sqlite(tmp_path: Path) -> type[Protocol]:
    """The state machine over SQLite: one service with one worker."""
    url = f"sqlite:///{tmp_path}/trmon.db"
    prepare_database(url)
    return _over(url)


@pytest.fixture
def on_postgres(postgres_url: str) -> type[Protocol]:
    """The state machine over PostgreSQL: a service and two workers with leases."""
    return _over(postgres_url)


def _over(url: str) -> type[Protocol]:
    prepare_faults(url)
    return type("ProtocolOverDatabase", (Protocol,), {"URL": url})


EXAMPLES = settings(max_examples=6, stateful_step_count=25, print_blob=True)


@pytest.mark.fuzz
def test_the_protocol_holds_on_sqlite(on_sqlite: type[Protocol]) -> None:
    run_state_machine_as_test(on_sqlite, settings=EXAMPLES)


@pytest.mark.fuzz
@pytest.mark.server("postgres")
def test_the_protocol_holds_on_postgresql(on_postgres: type[Protocol]) -> None:
    run_state_machine_as_test(on_postgres, settings=EXAMPLES)


def test_a_report_from_before_a_fork_is_sent_again(on_sqlite: type[Protocol]) -> None:
    machine = on_sqlite()
    machine.begin()
    machine.train(run="two", rank=1, same_step=False, is_ill=False)
    machine.relaunch(run="two", is_new_attempt=False, goes_back=False, silence=False)
    machine.train(run="two", rank=0, same_step=False, is_ill=False)
    machine.train_step(run="two", is_ill=False)
    for i in range(4):
        for seed in (0, 1):
            machine.repeat(i=i, seed=seed)
            machine.acknowledged_is_durable_and_once()
    machine.teardown()


SEARCH = settings(
    max_examples=200,
    stateful_step_count=30,
    phases=[Phase.generate],
    database=None,
    report_multiple_bugs=False,
    derandomize=True,
)
Defect = Callable[[pytest.MonkeyPatch], None]
History = Callable[[Protocol], Iterator[None]]


def do_nothing(*_: object, **__: object) -> None:
    """In place of a function whose effect a defect leaves out."""


def acknowledge_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers get their results when the rows are inserted, before COMMIT."""
    insert = group_commit._run_handler

    def early(transaction: Any, items: Any) -> list[Any]:
        results = insert(transaction, items)
        for item, result in zip(items, results, strict=True):
            if not item.future.done():
                item.future.set_result(result)
        return results

    monkeypatch.setattr(group_commit, "_run_handler", early)
    monkeypatch.setattr(WriteGroup, "resolve", do_nothing)
    monkeypatch.setattr(WriteGroup, "fail", do_nothing)


def accept_another_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another payload under the same identity counts as a duplicate."""
    outcome = reports._outcome

    def lenient(*given: Any, **options: Any) -> WriteOutcome:
        found = outcome(*given, **options)
        return WriteOutcome.DUPLICATE if found is WriteOutcome.CONFLICT else found

    monkeypatch.setattr(reports, "_outcome", lenient)


def forget_open_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frontier passes reports whose batch is still open."""
    monkeypatch.setattr(PendingState, "restart_frontier", lambda _, read: read)


def lose_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert is stored without its delivery."""
    monkeypatch.setattr(run_log, "write_deliveries", do_nothing)


def keep_the_registry_after_a_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs and claims of a transaction that rolled back stay in memory."""
    monkeypatch.setattr(RunRegistry, "forget", do_nothing)


def forget_open_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart does not read which alerts are open."""
    monkeypatch.setattr(RunLog, "open_alerts", lambda *_: [])


def record_deliveries_afterwards_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt to deliver is recorded with its result, and not before it is sent."""
    monkeypatch.setattr(Outbox, "mark_tried", do_nothing)


def ignore_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker commits without the leases of its runs."""
    monkeypatch.setattr(run_log, "check_fences", do_nothing)


def refused(machine: Protocol) -> Iterator[None]:
    """A commit fails; the trainer sends the same report again."""
    yield machine.train("one", 0, same_step=False, is_ill=False)
    yield machine.fail_to_store("one")
    yield machine.send("one", 0, is_ack_lost=False)


def repeated(machine: Protocol) -> Iterator[None]:
    """A trainer sends another payload under a known identity."""
    yield machine.train_step("one", is_ill=False)
    yield machine.repeat(0, seed=1)


def killed_over_an_open_batch(machine: Protocol) -> Iterator[None]:
    """A worker ends that has closed a step, and read a part of the next one."""
    yield machine.train_step("one", is_ill=False)
    yield machine.train("one", 0, same_step=False, is_ill=False)
    yield machine.send("one", 0, is_ack_lost=False)
    yield machine.run_round(0)
    yield machine.kill_worker(0, with_checkpoint=True)


def killed_while_firing(machine: Protocol) -> Iterator[None]:
    """A worker ends while an alert fires; the run stays ill."""
    for _ in range(2):
        yield machine.train_step("one", is_ill=True)
        yield machine.run_round(0)
        yield machine.kill_worker(0, with_checkpoint=False)


def recovered_after_an_unrecorded_delivery(machine: Protocol) -> Iterator[None]:
    """A worker ends between sending and recording; the run recovers."""
    yield machine.train_step("one", is_ill=True)
    yield machine.deliver_unrecorded(0, "one", is_ill=False, recovers=True)


def taken_over(machine: Protocol) -> Iterator[None]:
    """A worker loses its leases while it is about to close a batch whose grace is over; the other begins its own."""
    for run in machine.RUNS:
        yield machine.train(run, 0, same_step=False, is_ill=False)
        yield machine.send(run, 0, is_ack_lost=False)
    for i in range(2):
        yield machine.run_round(i)
    yield machine.tick(61.0)
    for i in range(2):
        yield machine.lose_leases_in_a_round(i, after_calls=0)


ANYWHERE: dict[Defect, History] = {
    acknowledge_before_the_commit: refused,
    keep_the_registry_after_a_rollback: refused,
    accept_another_payload: repeated,
    forget_open_batches: killed_over_an_open_batch,
    lose_deliveries: killed_while_firing,
    forget_open_alerts: killed_while_firing,
    record_deliveries_afterwards_only: recovered_after_an_unrecorded_delivery,
}


def follow(history: History, machine: Protocol) -> None:
    """Make the steps of a history, and check what must hold after each."""
    machine.begin()
    try:
        for _ in history(machine):
            machine.acknowledged_is_durable_and_once()
            machine.rows_and_alerts_follow_from_the_reports()
            machine.no_alert_is_told_twice()
            machine.passes_fail_only_with_the_database()
    finally:
        machine.teardown()


@pytest.mark.parametrize("defect", ANYWHERE, ids=lambda defect: defect.__name__)
def test_a_defect_is_found(defect: Defect, on_sqlite: type[Protocol], monkeypatch: pytest.MonkeyPatch) -> None:
    follow(ANYWHERE[defect], on_sqlite())
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        follow(ANYWHERE[defect], on_sqlite())


@pytest.mark.server("postgres")
def test_a_defect_of_leases_is_found(on_postgres: type[Protocol], monkeypatch: pytest.MonkeyPatch) -> None:
    follow(taken_over, on_postgres())
    ignore_fences(monkeypatch)
    with pytest.raises(AssertionError):
        follow(taken_over, on_postgres())


def test_random_steps_find_a_defect(on_sqlite: type[Protocol], monkeypatch: pytest.MonkeyPatch) -> None:
    forget_open_alerts(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(on_sqlite, settings=SEARCH)

"""The state machine can fail: it finds each of these deliberate defects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.protocol.machine import Protocol
from trmon.domain.messages import WriteOutcome
from trmon.store.registry import RunRegistry
from trmon.store.repositories import reports, run_log
from trmon.store.repositories.deliveries import Outbox
from trmon.store.repositories.run_log import RunLog
from trmon.store.writing import group_commit
from trmon.store.writing.transaction import WriteGroup
from trmon.worker.recovery import PendingState

pytestmark = pytest.mark.timeout(600)

SEARCH = settings(
    max_examples=200,
    stateful_step_count=30,
    phases=[Phase.generate],
    database=None,
    report_multiple_bugs=False,
    derandomize=True,
)


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
    same = WriteOutcome.DUPLICATE
    compared = reports._compared
    monkeypatch.setattr(
        reports,
        "_compared",
        lambda *given, **kind: same if compared(*given, **kind) is WriteOutcome.CONFLICT else compared(*given, **kind),
    )


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


FOUND = (AssertionError, Flaky)
"""Flaky: an early acknowledgement is a race, which another run of the same steps may win."""
Defect = Callable[[pytest.MonkeyPatch], None]
ANYWHERE: list[Defect] = [
    acknowledge_before_the_commit,
    accept_another_payload,
    forget_open_batches,
    lose_deliveries,
    keep_the_registry_after_a_rollback,
    forget_open_alerts,
    record_deliveries_afterwards_only,
]
WITH_LEASES: list[Defect] = [ignore_fences]


@pytest.mark.parametrize("defect", ANYWHERE, ids=lambda defect: defect.__name__)
def test_a_defect_is_found(defect: Defect, on_sqlite: type[Protocol], monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(FOUND):
        run_state_machine_as_test(on_sqlite, settings=SEARCH)


@pytest.mark.server("postgres")
@pytest.mark.parametrize("defect", WITH_LEASES, ids=lambda defect: defect.__name__)
def test_a_defect_of_leases_is_found(
    defect: Defect, on_postgres: type[Protocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    with pytest.raises(FOUND):
        run_state_machine_as_test(on_postgres, settings=SEARCH)

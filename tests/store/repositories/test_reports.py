"""Tests appending reports: each is stored once, even if it is sent twice."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, event, update

from tests.store.builders import (
    NOW,
    append,
    beat,
    commit,
    execute,
    intake,
    notice_intake,
    plan_of,
    realistic_columns,
    report,
    report_intake,
    scalars_intake,
    start_intake,
    stored_reports,
)
from trmon.domain.identity import BatchKey
from trmon.domain.messages import NewestMessage, WriteOutcome
from trmon.domain.pipeline.run_update import Frontier
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.repositories.reports import _NEWEST
from trmon.store.schema import tables
from trmon_client.core import wire


def test_a_report_round_trips(store: Store) -> None:
    sent = report(step=7, update=2, rank=1, world_size=4, chunk=3, scalars={"grad_norm": 0.5})
    [receipt] = append(store, intake(sent))
    [stored] = stored_reports(store, receipt.run_id)
    assert receipt.status is WriteOutcome.STORED
    assert (stored.key.batch, stored.key.rank, stored.key.chunk) == (BatchKey(receipt.attempt_id, 7, 2), 1, 3)
    assert stored.report.scalars == {"grad_norm": 0.5}
    assert stored.received_at == NOW
    for name, expected in realistic_columns().items():
        np.testing.assert_array_equal(stored.columns()[name], expected)


def test_a_repeated_report_is_a_duplicate_with_the_stored_bits(store: Store) -> None:
    first = append(store, report_intake(accepted=b"\x0f"))
    second = append(store, report_intake(accepted=b"\x0f"))
    assert [first[0].status, second[0].status] == [WriteOutcome.STORED, WriteOutcome.DUPLICATE]
    assert second[0].accepted == b"\x0f"
    assert len(stored_reports(store, first[0].run_id)) == 1


def test_a_report_stored_with_an_older_digest_is_a_duplicate(store: Store) -> None:
    append(store, replace(report_intake(seed=1), digest=b"of sixteen bytes"))
    statuses = [receipt.status for receipt in append(store, report_intake(seed=1), report_intake(seed=2))]
    assert statuses == [WriteOutcome.DUPLICATE, WriteOutcome.CONFLICT]


def test_duplicates_within_a_group_are_detected(store: Store) -> None:
    same, other = report_intake(seed=1), report_intake(seed=2)
    statuses = [receipt.status for receipt in append(store, same, same, other, report_intake(step=1))]
    assert statuses == [WriteOutcome.STORED, WriteOutcome.DUPLICATE, WriteOutcome.CONFLICT, WriteOutcome.STORED]


def test_notices_are_stored_once_and_read_in_order(store: Store) -> None:
    start = start_intake(config={"lr": 1e-6}, owner="me")
    pause = notice_intake(wire.Pause, sequence=1, reason="evaluation")
    receipts = append(store, start, pause, start)
    notices = store.reports.notices_after(receipts[0].run_id, 0, limit=10)
    assert [receipt.status for receipt in receipts] == [*[WriteOutcome.STORED] * 2, WriteOutcome.DUPLICATE]
    assert [type(notice.message) for notice in notices] == [wire.Start, wire.Pause]
    assert store.reports.notices_after(receipts[0].run_id, notices[0].id, limit=10) == notices[1:]


def test_reports_of_a_batch_are_ordered_by_rank_and_chunk(store: Store) -> None:
    places = [(1, 0), (0, 1), (0, 0), (1, 1)]
    receipts = append(store, *(report_intake(rank=rank, chunk=chunk, world_size=2) for rank, chunk in places))
    append(store, report_intake(update=0))
    found = store.reports.of_batch(BatchKey(receipts[0].attempt_id, 0, None))
    assert [(stored.key.rank, stored.key.chunk) for stored in found] == sorted(places)


def test_heartbeats_are_recorded_but_not_stored_and_create_no_run(store: Store) -> None:
    [receipt] = append(store, start_intake())
    beat(store, at=NOW + 30)
    beat(store, at=NOW, run="stranger")
    append(store, report_intake())
    assert store.run_log.last_seen(receipt.run_id) == NOW + 30
    assert len(store.reports.notices_after(receipt.run_id, 0, limit=10)) == 1
    assert [run.key.run for run in store.run_log.unfinished_runs()] == ["grpo"]


def test_heartbeat_times_survive_a_restart(store: Store, url: str) -> None:
    [receipt] = append(store, start_intake())
    beat(store, at=NOW + 30)
    beat(store, at=NOW + 31)
    store.close()
    again = Store.open(url)
    assert again.run_log.last_seen(receipt.run_id) == NOW + 31
    again.close()


def test_appending_a_heartbeat_is_refused(store: Store) -> None:
    with pytest.raises(TypeError, match="touch"):
        append(store, intake(wire.Heartbeat(attempt="a", launch="launch-1")))


def test_repeated_reports_are_looked_up_together(store: Store, url: str) -> None:
    sent = [report_intake(step=step, rank=rank) for step in range(4) for rank in range(4)]
    stored = append(store, *sent)
    statements: list[str] = []

    def record(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        again = append(store, *sent)
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    assert [(receipt.status, receipt.id) for receipt in again] == [(WriteOutcome.DUPLICATE, one.id) for one in stored]
    looked_up = [statement for statement in statements if statement.startswith("SELECT report.")]
    assert len(looked_up) == (1 if url.startswith("postgresql") else len(sent))


def test_the_newest_message_of_each_run_has_the_senders_time(store: Store) -> None:
    ids = {
        name: append(store, *messages)[0].run_id
        for name, messages in {
            "bare": [start_intake(run="bare", sent_at=9.0)],
            "reports": [report_intake(run="reports", step=step, sent_at=5.0 + step) for step in range(3)],
            "scalars": [
                start_intake(run="scalars"),
                *(scalars_intake(i, run="scalars", sent_at=2.0 + i) for i in range(3)),
                notice_intake(wire.Finish, run="scalars", sequence=9, sent_at=99.0),
            ],
        }.items()
    }
    append(store, scalars_intake(1, run="reports", sent_at=6.0))
    commit(store, ids["reports"], frontier=Frontier(report_id=3, notice_id=99))
    append(store, report_intake(run="damaged", sent_at=3.0))
    newest = store.reports.newest([*ids.values(), 4, 1000])
    assert {name: newest[run_id] for name, run_id in ids.items()} == {
        "bare": NewestMessage(sent_at=None, is_unread=True),
        "reports": NewestMessage(sent_at=7.0, is_unread=False),
        "scalars": NewestMessage(sent_at=4.0, is_unread=True),
    }
    assert set(newest) == {*ids.values(), 4}
    execute(store, update(tables.report).where(tables.report.c.run_id == 4).values(payload=b"\xc1"))
    assert store.reports.newest([4]) == {4: NewestMessage(sent_at=0.0, is_unread=True)}


def test_the_newest_messages_are_found_by_an_index(store: Store, engines: Engines) -> None:
    for part in range(4):
        steps, run = range(part * 100, part * 100 + 100), f"run-{part % 3}"
        append(store, *(report_intake(run=run, step=step) for step in steps))
        append(store, *(scalars_intake(step, run=run) for step in steps))
    plan = plan_of(engines, _NEWEST.params(ids=[1, 2, 3]))
    assert len(re.findall(r"SEARCH (?:report|notice)|Scan Backward using ix_(?:report|notice)_run_id", plan)) == 4, plan

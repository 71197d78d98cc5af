"""Reports: each is stored once, even if it is sent twice, and the oldest are deleted first."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from threading import Timer
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, update

from tests.store.builders import (
    NOW,
    alert,
    append,
    batch,
    batch_key,
    beat,
    begin,
    commit,
    delivery,
    execute,
    intake,
    notice_intake,
    plan_of,
    realistic_columns,
    report,
    report_intake,
    scalars_intake,
    silence,
    start_intake,
    stored_reports,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.identity import BatchKey
from trmon.domain.messages import NewestMessage, WriteOutcome
from trmon.domain.pipeline.publish import Event, Frontier
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.repositories import retention
from trmon.store.repositories.reports import _NEWEST
from trmon.store.repositories.retention import DEAD_FACTOR, EVENT_SECONDS, Pruned
from trmon.store.schema import tables
from trmon.store.writing.group_commit import BATCH_ROWS
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


FOREVER, UNLIMITED = 1e9, 1 << 50
STEPS = 6


@pytest.fixture
def run_ids(store: Store) -> list[int]:
    """Two runs that report in turn, one report per second; all reports are processed."""
    ids = begin(store, "math/a", "math/b")
    for step in range(STEPS):
        append(store, report_intake(run="a", step=step), report_intake(run="b", step=step), now=NOW + step)
    for run_id in ids:
        commit(store, run_id, frontier=Frontier(report_id=2 * STEPS))
    return ids


def kept(store: Store, run_id: int) -> list[int]:
    return [stored.report.step for stored in stored_reports(store, run_id)]


def bytes_of(n_reports: float) -> int:
    """Return the size of reports; they differ only in their step."""
    return int(n_reports * len(report_intake(run="a", step=STEPS - 1).payload))


def prune(store: Store, **limits: Any) -> Pruned:
    """Prune at the time of the last report, with only the given limits."""
    unlimited = {"max_age_seconds": FOREVER, "max_bytes_per_run": UNLIMITED, "max_bytes": UNLIMITED}
    return store.retention.prune(now=NOW + STEPS, **unlimited | limits)


def test_only_reports_over_the_age_limit_are_pruned(store: Store, run_ids: list[int]) -> None:
    assert prune(store) == Pruned(reports=0, events=0, deliveries=0, silences=0, audit=0)
    assert kept(store, run_ids[0]) == list(range(STEPS))
    assert prune(store, max_age_seconds=2.0).reports == 2 * (STEPS - 2)
    assert [kept(store, run_id) for run_id in run_ids] == [[4, 5], [4, 5]]


def test_a_clock_that_was_briefly_behind_prunes_no_newer_reports(store: Store, run_ids: list[int]) -> None:
    append(store, report_intake(run="a", step=STEPS), now=NOW - 1e6)
    commit(store, run_ids[0], frontier=Frontier(report_id=2 * STEPS + 1))
    assert prune(store, max_age_seconds=1e5).reports == 1
    assert kept(store, run_ids[0]) == list(range(STEPS))


@pytest.mark.server("postgres")
def test_summing_the_size_of_all_reports_has_a_longer_timeout(postgres_url: str) -> None:
    impatient = Store.open(f"{postgres_url}?options=-c%20statement_timeout%3D200ms")
    with closing(impatient), psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE report")
        Timer(0.5, other.commit).start()
        assert prune(impatient) == Pruned(reports=0, events=0, deliveries=0, silences=0, audit=0)


def test_the_limits_keep_the_newest_bytes_of_a_run_and_of_all(store: Store, run_ids: list[int]) -> None:
    prune(store, max_bytes_per_run=bytes_of(2.5))
    assert [kept(store, run_id) for run_id in run_ids] == [[4, 5], [4, 5]]
    prune(store, max_bytes=bytes_of(3.5))
    assert [kept(store, run_id) for run_id in run_ids] == [[5], [4, 5]]


def test_pruning_uses_small_transactions_and_stops_between_two(store: Store, run_ids: list[int]) -> None:
    n_reports = 2 * BATCH_ROWS + 10
    append(store, *(report_intake(run="a", step=STEPS + i, n=1) for i in range(n_reports)))
    commit(store, run_ids[0], frontier=Frontier(report_id=2 * STEPS + n_reports))
    answers = iter([True])
    assert 0 < prune(store, max_bytes_per_run=0, may_continue=lambda: next(answers, False)).reports <= BATCH_ROWS
    n_left, left = len(kept(store, run_ids[0])), list[int]()
    store.writer.on_commit(lambda _: left.append(len(stored_reports(store, run_ids[0]))))
    prune(store, max_bytes_per_run=0)
    pieces = [before - after for before, after in pairwise([n_left, *left])]
    assert sum(pieces) == n_left
    assert max(pieces) == BATCH_ROWS


def test_unread_reports_and_batches_are_not_pruned(store: Store, run_ids: list[int]) -> None:
    row = batch(batch_key(1, 0), run_id=run_ids[0], ordinal=1)
    commit(store, run_ids[0], frontier=Frontier(report_id=3), batches=(row,))
    prune(store, max_bytes=0)
    assert store.run_log.batch(row.key) == row
    assert [kept(store, run_id) for run_id in run_ids] == [[2, 3, 4, 5], []]


def test_events_are_pruned_after_a_day(store: Store, run_ids: list[int]) -> None:
    old = Event(kind="x", data={}, at=NOW + STEPS - EVENT_SECONDS - 1)
    commit(store, run_ids[0], frontier=Frontier(report_id=12), events=(old, Event(kind="x", data={}, at=NOW)))
    assert prune(store).events == 1
    assert store.events.last_id() == 2


AGE_SECONDS = 100.0
OLD = NOW - AGE_SECONDS - 1


def prune_notifications(store: Store, *, now: float = NOW) -> Pruned:
    return store.retention.prune(now=now, max_age_seconds=AGE_SECONDS, max_bytes_per_run=0, max_bytes=0)


def put(store: Store, *made: Delivery, of: Alert | None = None) -> None:
    """Add deliveries, and optionally an alert, to a run."""
    [run_id] = begin(store, "math/grpo")
    alerts = () if of is None else (replace(of, run_id=run_id),)
    commit(store, run_id, alerts=alerts, deliveries=[replace(one, run_id=run_id) for one in made])


def kept_deliveries(store: Store) -> set[str]:
    return {listed.receiver for listed in store.deliveries.list(access=EVERYTHING).items}


def made(key: str, state: DeliveryState, *, at: float = OLD, of: Alert | None = None) -> Delivery:
    return delivery(key, receiver=key, state=state, made_at=at, episode=None if of is None else of.episode)


def test_old_finished_deliveries_are_deleted(store: Store) -> None:
    waiting = (DeliveryState.DUE, DeliveryState.HELD, DeliveryState.STANDING)
    put(
        store,
        made("delivered", DeliveryState.DELIVERED),
        made("muted", DeliveryState.MUTED),
        made("newer", DeliveryState.DELIVERED, at=NOW),
        made("given up", DeliveryState.DEAD),
        made("given up long ago", DeliveryState.DEAD, at=NOW - DEAD_FACTOR * AGE_SECONDS - 1),
        *(made(state.value, state) for state in waiting),
    )
    assert prune_notifications(store).deliveries == 3
    assert kept_deliveries(store) == {"newer", "given up", *(state.value for state in waiting)}


@pytest.mark.parametrize(("state", "stays"), [(AlertState.FIRING, True), (AlertState.RESOLVED, False)])
def test_deliveries_of_an_alert_are_kept_only_while_it_fires(store: Store, state: AlertState, *, stays: bool) -> None:
    of = alert(run_id=1, since_at=OLD, state=state)
    put(store, made("delivered", DeliveryState.DELIVERED, of=of), made("dead", DeliveryState.DEAD, of=of), of=of)
    prune_notifications(store, now=NOW + 9 * AGE_SECONDS)
    assert kept_deliveries(store) == ({"delivered", "dead"} if stays else set())


def test_the_newest_dead_deliveries_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DEAD_ROWS", 3)
    put(store, *(made(f"dead-{i}", DeliveryState.DEAD, at=NOW) for i in range(5)))
    assert prune_notifications(store).deliveries == 2
    assert kept_deliveries(store) == {"dead-2", "dead-3", "dead-4"}


def test_a_silence_is_deleted_long_after_its_end(store: Store) -> None:
    _, *later = [silence(store, starts_at=OLD - 9, ends_at=ends_at) for ends_at in (OLD, NOW - 1, NOW + 1)]
    assert prune_notifications(store).silences == 1
    assert list(store.silences.list(access=EVERYTHING).items) == later[::-1]

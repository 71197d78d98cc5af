"""Tests retention: the oldest reports are deleted first; batches and unread reports are kept."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from threading import Timer
from typing import Any

import psycopg
import pytest

from tests.store.builders import (
    NOW,
    alert,
    append,
    batch,
    batch_key,
    begin,
    commit,
    delivery,
    report_intake,
    silence,
    stored_reports,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.pipeline.run_update import Event, Frontier
from trmon.store import Store
from trmon.store.repositories import retention
from trmon.store.repositories.retention import DEAD_FACTOR, EVENT_SECONDS, Pruned
from trmon.store.writing.group_commit import BATCH_ROWS

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
    """Return the steps whose reports are stored."""
    return [stored.report.step for stored in stored_reports(store, run_id)]


def bytes_of(n_reports: float) -> int:
    """Return the size of reports; they differ only in their step."""
    return int(n_reports * len(report_intake(run="a", step=STEPS - 1).payload))


def prune(store: Store, **limits: Any) -> Pruned:
    """Prune at the time of the last report, with only the given limits."""
    unlimited = {"max_age_seconds": FOREVER, "max_bytes_per_run": UNLIMITED, "max_bytes": UNLIMITED}
    return store.retention.prune(now=NOW + STEPS, **unlimited | limits)


def test_nothing_is_pruned_within_the_limits(store: Store, run_ids: list[int]) -> None:
    assert prune(store) == Pruned(reports=0, events=0, deliveries=0, silences=0, audit=0)
    assert kept(store, run_ids[0]) == list(range(STEPS))


def test_reports_over_the_age_limit_are_pruned(store: Store, run_ids: list[int]) -> None:
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


def test_the_run_limit_keeps_the_newest_bytes_of_a_run(store: Store, run_ids: list[int]) -> None:
    prune(store, max_bytes_per_run=bytes_of(2.5))
    assert [kept(store, run_id) for run_id in run_ids] == [[4, 5], [4, 5]]


def test_the_total_limit_keeps_the_newest_bytes_of_all_runs(store: Store, run_ids: list[int]) -> None:
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

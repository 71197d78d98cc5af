"""Tests the run log: a run update is written atomically, round-trips and can be repeated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import Engine, event, update

from tests.store.builders import (
    NOW,
    alert,
    alert_event,
    append,
    batch,
    batch_key,
    beat,
    begin,
    commit,
    decision,
    delivery,
    execute,
    notice_intake,
    paged,
    plan_of,
    report_intake,
    scalars_intake,
    start_intake,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.adaptation.proposal import AdaptationSetting
from trmon.domain.alerts.alert import AlertState
from trmon.domain.batches.batch import PolicyRole
from trmon.domain.errors import NotFound
from trmon.domain.identity import BatchKey, ReportKey
from trmon.domain.messages import DamagedReport, PreparedMessage, StoredReport, Unread
from trmon.domain.pipeline.publish import Checkpoint, Event, Frontier
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.repositories.run_log import RunLog
from trmon.store.rows.messages import newer_rows_query
from trmon.store.schema import tables
from trmon_client.core import wire
from trmon_client.core.policies.policy import preset


@pytest.fixture
def log(store: Store) -> RunLog:
    return store.run_log


def test_a_new_run_has_no_progress_and_an_unknown_one_is_not_found(log: RunLog, run_id: int) -> None:
    assert log.progress(run_id).frontier == Frontier()
    assert log.progress(run_id).checkpoint is None
    assert log.batches_after(run_id, 0, limit=10) == []
    assert log.open_alerts(run_id) == []
    assert log.policies.current(run_id) == default_version(now=NOW)
    assert log.policies.history(run_id) == []
    with pytest.raises(NotFound):
        log.runs.by_id(404)
    with pytest.raises(NotFound):
        log.policies.current(404)
    assert log.last_seen(404) is None


def test_a_batch_round_trips(store: Store, log: RunLog, run_id: int) -> None:
    signals = {"total_kl_k3": 1e-3, "chi2": math.inf, "low": -math.inf, "mask_rate": math.nan}
    row = batch(
        batch_key(1, 7, 2),
        run_id=run_id,
        ordinal=1,
        missing_ranks=(3, 5),
        complete=False,
        policy_hash="ab" * 16,
        signals=signals,
        scalars={"grad_norm": 0.5},
    )
    commit(store, run_id, batches=(row,))
    assert repr(log.batch(row.key)) == repr(row)  # NaN is not equal to itself
    assert log.batch(batch_key(1, 7, None)) is None
    assert repr(log.batches_after(run_id, 0, limit=10)) == repr([row])
    assert log.batches_after(run_id, 1, limit=10) == []


def test_a_revised_batch_replaces_the_row(store: Store, log: RunLog, run_id: int) -> None:
    first = batch(batch_key(1, 1), run_id=run_id, ordinal=1, complete=False)
    revised = structs.replace(first, complete=True, revised=True, primary_pair=None, signals={"kl": 2.0, "new": 3.0})
    commit(store, run_id, batches=(first,))
    commit(store, run_id, batches=(revised,))
    assert log.batches_after(run_id, 0, limit=10) == [revised]


def test_decisions_are_returned_with_the_active_one_first(store: Store, run_id: int) -> None:
    key = batch_key(1, 1)
    shadow = decision(key, policy_hash="geo_mask", policy_name="geo_mask", role=PolicyRole.SHADOW)
    rows = (shadow, decision(key, policy_hash="trm", counts={"accepted": 7, "mean_k3": 1}))
    commit(store, run_id, batches=(batch(key, run_id=run_id, ordinal=1),), decisions=rows)
    commit(store, run_id, decisions=rows)
    assert store.batches.decisions(key, access=EVERYTHING) == rows[::-1]


def test_the_frontier_and_the_checkpoint_move_together_or_alone(store: Store, log: RunLog, run_id: int) -> None:
    checkpoint = Checkpoint(ordinal=64, version=1, state=b"mind")
    commit(store, run_id, frontier=Frontier(report_id=5, notice_id=2), checkpoint=checkpoint)
    commit(store, run_id, frontier=Frontier(report_id=9, notice_id=2))
    assert log.progress(run_id).frontier == Frontier(report_id=9, notice_id=2)
    assert log.progress(run_id).checkpoint == checkpoint


def test_a_run_update_writes_only_its_own_fields(store: Store, log: RunLog, run_id: int) -> None:
    commit(store, run_id, owner="me", tags=("dapo", "a"), config={"lr": 1e-6}, mode="enforce", attempt_id=1)
    commit(store, run_id, state=RunState.STALLED, last_step=12)
    run = log.runs.by_id(run_id)
    assert (run.owner, run.tags, run.config, run.mode) == ("me", ("a", "dapo"), {"lr": 1e-6}, "enforce")
    assert (run.state, run.last_step, run.attempt_id) == (RunState.STALLED, 12, 1)


def test_the_last_report_is_the_newest_of_any_rank(store: Store, log: RunLog, run_id: int) -> None:
    assert log.runs.by_id(run_id).last_report_at is None
    append(store, report_intake(world_size=2, rank=1), now=NOW + 5)
    append(store, report_intake(world_size=2, rank=0), now=NOW + 3)
    assert log.runs.by_id(run_id).last_report_at == NOW + 5


def test_an_alert_moves_through_its_states(store: Store, log: RunLog, run_id: int) -> None:
    pending = alert(run_id=run_id, state=AlertState.PENDING, value=math.nan)
    firing = replace(pending, state=AlertState.FIRING, value=math.inf, updated_at=NOW + 1)
    for state in (pending, firing):
        commit(store, run_id, alerts=(state,))
        assert repr(log.open_alerts(run_id)) == repr([state])  # NaN is not equal to itself
    commit(store, run_id, alerts=(replace(firing, state=AlertState.RESOLVED),))
    assert log.open_alerts(run_id) == []


def test_an_alert_that_never_fired_is_deleted(store: Store, log: RunLog, run_id: int) -> None:
    pending = alert(run_id=run_id, state=AlertState.PENDING)
    other = replace(pending, step=9)
    commit(store, run_id, alerts=(pending, other))
    commit(store, run_id, alerts=(replace(pending, state=AlertState.DROPPED),))
    assert log.open_alerts(run_id) == [other]


def test_a_repeated_transition_and_delivery_are_stored_once(store: Store, run_id: int) -> None:
    firing = alert(run_id=run_id)
    silence = alert_event(firing, silence_started_at=NOW)
    for _ in range(2):
        commit(store, run_id, alert_events=(alert_event(firing), silence), deliveries=(delivery("once"),))
    assert store.alerts.events(firing.identity, access=EVERYTHING).items == (silence, alert_event(firing))
    assert len(store.outbox.due(now=NOW)) == 1


def test_policy_versions_are_added(store: Store, log: RunLog, run_id: int) -> None:
    version = PolicyVersion(
        policy=preset("trm_max", delta=0.02),
        shadows=(preset("geo_mask"),),
        author="me",
        reason="too lax",
        created_at=NOW,
        from_step=40,
        pinned=True,
    )
    commit(store, run_id, policy=version)
    later = replace(version, policy=preset("trm"), author="you")
    store.policies.put(run_id, later).result(10)
    assert log.policies.history(run_id) == [version, later]
    assert paged(store.policies.list, run_id, limit=2) == [later, version, default_version(now=NOW)]
    assert log.policies.current(run_id) == later


def test_a_run_update_is_atomic(store: Store, log: RunLog, run_id: int) -> None:
    first = batch(batch_key(1, 1), run_id=run_id, ordinal=1)
    clash = batch(batch_key(404, 1), run_id=run_id, ordinal=2)
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        commit(store, run_id, batches=(first, clash), frontier=Frontier(report_id=9))
    assert log.batches_after(run_id, 0, limit=10) == []
    assert log.progress(run_id).frontier == Frontier()


def test_unfinished_runs_are_running_or_have_unread_messages(store: Store, log: RunLog) -> None:
    ended, unread, lives = begin(store, "math/ended", "math/unread", "math/lives")
    for run_id in (ended, unread):
        [notice] = store.reports.notices_after(run_id, 0, limit=10)
        commit(store, run_id, frontier=Frontier(notice_id=notice.id), state=RunState.FINISHED)
    append(store, notice_intake(wire.Pause, run="unread", sequence=1))
    assert [run.id for run in log.unfinished_runs()] == [unread, lives]


def test_listeners_get_runs_with_new_messages_but_not_the_writes_of_the_worker(store: Store, run_id: int) -> None:
    notified: list[frozenset[int]] = []
    store.on_commit(notified.append)
    commit(store, run_id, events=(Event(kind="batch", data={}, at=NOW),))
    append(store, report_intake())
    store.writer.close()
    assert notified == [frozenset(), {run_id}]


def test_edits_change_the_revision_and_writes_of_the_worker_do_not(store: Store, run_id: int) -> None:
    key = store.runs.by_id(run_id).key
    before = store.run_log.revision(run_id)
    commit(store, run_id, state=RunState.PAUSED)
    append(store, report_intake())
    assert store.is_shared or store.run_log.revision(run_id) == before, (
        "a store that is not shared is notified of every edit"
    )
    edits: tuple[Callable[[], Future[Any]], ...] = (
        lambda: store.policies.put(run_id, default_version(now=NOW)),
        lambda: store.adaptations.put(run_id, AdaptationSetting(), access=EVERYTHING, now=NOW),
        lambda: store.runs.update(key, access=EVERYTHING, now=NOW, tags=["kept"]),
        lambda: store.runs.update(key, access=EVERYTHING, now=NOW, name="other"),
    )
    for edit in edits:
        before = store.run_log.revision(run_id)
        edit().result(30)
        assert store.run_log.revision(run_id) > before


def test_active_launches_sent_a_heartbeat_or_have_just_started(store: Store, log: RunLog, run_id: int) -> None:
    append(store, report_intake(step=4), report_intake(step=9, launch="launch-2", seed=1), now=NOW + 50)
    beat(store, at=NOW + 60)
    append(store, notice_intake(wire.Finish, launch="launch-2", sequence=1), now=NOW + 70)
    first, second = sorted(log.active_launches(run_id, since=NOW + 40), key=lambda speaker: speaker.began_at)
    assert (first.attempt, first.launch, first.began_at, first.beat_at) == ("a", "launch-1", NOW, NOW + 60)
    assert (second.attempt, second.began_at, second.beat_at) == ("a~launch-2", NOW + 50, None)
    assert [(speaker.last_step, speaker.ended) for speaker in (first, second)] == [(4, False), (9, True)]
    assert [speaker.launch for speaker in log.active_launches(run_id, since=NOW + 55)] == ["launch-1"]
    assert log.active_launches(run_id, since=NOW + 60) == []


N_RUNS = 12


def messages(chance: random.Random, *, n: int) -> list[PreparedMessage]:
    """Return messages of runs that send at different rates; some send none."""
    runs = [run for run in range(N_RUNS) for _ in range(run)]
    made = []
    for step, run in enumerate(chance.choices(runs, k=n)):
        make = chance.choice([report_intake, start_intake])
        fields: dict[str, Any] = {"step": step} if make is report_intake else {"sequence": step}
        made.append(make(run=f"run-{run}", **fields))
    return made


def filled(store: Store, *, seed: int) -> tuple[list[int], random.Random]:
    """Fill a store at random and return its run ids."""
    chance = random.Random(seed)
    starts = append(store, *(start_intake(run=f"run-{run}") for run in range(N_RUNS)))
    append(store, *messages(chance, n=60))
    return [receipt.run_id for receipt in starts], chance


def contents(unread: Unread) -> tuple[list[object], list[object]]:
    """Return the contents of unread messages in order; columns as their stored bytes."""
    return [vars_of(report) for report in unread.reports], list(unread.notices)


def vars_of(report: StoredReport) -> tuple[object, ...]:
    columns = report.columns()
    values = {name: columns[name].tobytes() for name in columns}
    return (report.id, report.run_id, report.key, report.received_at, report.accepted, report.report, values)


@pytest.mark.parametrize("seed", range(2))
def test_each_run_gets_the_messages_that_it_would_read_alone(store: Store, seed: int) -> None:
    run_ids, chance = filled(store, seed=seed)
    for _ in range(5):
        requested = chance.sample(run_ids, k=chance.randint(1, N_RUNS))
        read = {id_: Frontier(report_id=chance.randint(0, 70), notice_id=chance.randint(0, 70)) for id_ in requested}
        unread = store.run_log.unread(read, limit=100)
        assert unread is not None
        assert list(unread) == requested
        for run_id, frontier in read.items():
            alone = store.reports.unread_of(run_id, frontier, limit=100)
            assert contents(unread[run_id]) == contents(alone)


@pytest.mark.parametrize("is_alone", [True, False], ids=["one run", "many runs"])
def test_messages_that_come_while_others_are_read_are_all_left_for_later(store: Store, is_alone: bool) -> None:
    """A report that was read without the scalars before it would make their step's history final."""
    [receipt] = append(store, report_intake(step=0))
    read = Frontier()
    with after_first_query_of("notice", lambda: append(store, scalars_intake(0), report_intake(step=1))):
        if is_alone:
            first = store.reports.unread_of(receipt.run_id, read, limit=100)
        else:
            first = (store.run_log.unread({receipt.run_id: read}, limit=100) or {})[receipt.run_id]
    assert ([found.key.batch.step for found in first.reports], first.notices) == ([0], [])
    later = store.reports.unread_of(receipt.run_id, read, limit=100)
    assert (len(later.reports), len(later.notices)) == (2, 1)


@contextmanager
def after_first_query_of(table: str, act: Callable[[], object]) -> Iterator[None]:
    """Call a function between the first query of a table and what its transaction does next."""
    thread, has_acted = get_ident(), False

    def watch(_c: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal has_acted
        is_query = f"FROM {table}" in statement or f"JOIN {table} " in statement
        if is_query and get_ident() == thread and not has_acted:
            has_acted = True
            act()

    event.listen(Engine, "after_cursor_execute", watch)
    yield
    event.remove(Engine, "after_cursor_execute", watch)
    assert has_acted


def test_a_result_that_reaches_the_limit_is_discarded(store: Store) -> None:
    run_ids = [append(store, *(report_intake(run=run, step=step) for step in range(3)))[0].run_id for run in "ab"]
    read = dict.fromkeys(run_ids, Frontier())
    assert store.run_log.unread(read, limit=6) is None
    unread = store.run_log.unread(read, limit=7)
    assert unread is not None
    assert [len(unread[run_id].reports) for run_id in run_ids] == [3, 3]


def test_an_undecodable_row_is_returned_as_damaged(store: Store) -> None:
    broken, sound = (append(store, report_intake(run=run))[0] for run in ("broken", "sound"))
    damage = update(tables.report).where(tables.report.c.id == broken.id).values(payload=b"\xc1")
    execute(store, damage)
    unread = store.run_log.unread({broken.run_id: Frontier(), sound.run_id: Frontier()}, limit=10)
    assert unread is not None
    [damaged], [whole] = unread[broken.run_id].reports, unread[sound.run_id].reports
    assert isinstance(damaged, DamagedReport)
    assert (damaged.id, damaged.key) == (broken.id, ReportKey(BatchKey(broken.attempt_id, 0, None), 0, 0))
    assert damaged.reason.startswith("a stored report is damaged: ")
    assert isinstance(whole, StoredReport)


def test_the_query_uses_an_index_even_with_few_runs(store: Store, engines: Engines) -> None:
    """If one run has a large share of all rows, a query planner may prefer a full scan."""
    for part in range(4):
        append(store, *(report_intake(step=step) for step in range(part * 100, part * 100 + 100)))
    query, given = newer_rows_query(engines.reader.dialect.name, tables.report, {1: 399, 2: 0, 3: 0}, limit=512)
    plan = plan_of(engines, query.params(given))
    assert any(found in plan for found in ("SEARCH report USING", "Index Scan using")), plan
    assert not any(read_whole in plan for read_whole in ("SCAN report", "Seq Scan on report")), plan

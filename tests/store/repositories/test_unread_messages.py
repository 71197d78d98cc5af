"""Tests unread messages of many runs: the same as one by one, read from an index, complete or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import pytest
from sqlalchemy import Engine, event, text, update

from tests.store.builders import append, intake, report_intake, start_intake
from trmon.domain.model.identity import BatchKey, ReportKey
from trmon.domain.model.messages import DamagedReport, PreparedMessage, StoredReport, Unread
from trmon.domain.state.run_update import Frontier
from trmon.store import Store
from trmon.store.database.connect import engines_of
from trmon.store.database.newer_rows import newer_rows_query
from trmon.store.schema import tables
from trmon_client.core import wire

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


@pytest.mark.parametrize("seed", range(4))
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
    with after_first_query_of("notice", lambda: append(store, scalars_intake(step=0), report_intake(step=1))):
        if is_alone:
            first = store.reports.unread_of(receipt.run_id, read, limit=100)
        else:
            first = (store.run_log.unread({receipt.run_id: read}, limit=100) or {})[receipt.run_id]
    assert ([found.key.batch.step for found in first.reports], first.notices) == ([0], [])
    later = store.reports.unread_of(receipt.run_id, read, limit=100)
    assert (len(later.reports), len(later.notices)) == (2, 1)


def scalars_intake(*, step: int) -> PreparedMessage:
    return intake(wire.Scalars(attempt="a", launch="launch-1", sequence=1, step=step, values={"lr": 1.0}))


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
    store.writer.submit(lambda transaction: transaction.connection.execute(damage) and None).result(30)
    unread = store.run_log.unread({broken.run_id: Frontier(), sound.run_id: Frontier()}, limit=10)
    assert unread is not None
    [damaged], [whole] = unread[broken.run_id].reports, unread[sound.run_id].reports
    assert isinstance(damaged, DamagedReport)
    assert (damaged.id, damaged.key) == (broken.id, ReportKey(BatchKey(broken.attempt_id, 0, None), 0, 0))
    assert damaged.reason.startswith("a stored report is damaged: ")
    assert isinstance(whole, StoredReport)


def test_the_query_uses_an_index_even_with_few_runs(url: str, store: Store) -> None:
    """If one run has a large share of all rows, a query planner may prefer a full scan."""
    for batch in range(4):
        append(store, *(report_intake(step=step) for step in range(batch * 100, batch * 100 + 100)))
    engines = engines_of(url)
    with engines.writing.begin() as connection:
        connection.execute(text("ANALYZE"))
    plan = plan_of(engines.reader)
    engines.dispose()
    assert any(found in plan for found in ("SEARCH report USING", "Index Scan using")), plan
    assert not any(read_whole in plan for read_whole in ("SCAN report", "Seq Scan on report")), plan


def plan_of(engine: Engine) -> str:
    name = engine.dialect.name
    query, given = newer_rows_query(name, tables.report, {1: 399, 2: 0, 3: 0}, limit=512)
    with engine.connect() as connection:
        written = query.params(given).compile(connection, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if name == "sqlite" else "EXPLAIN (COSTS OFF)"
        rows = connection.exec_driver_sql(f"{explain} {written}")
        return "\n".join(str(row[-1]) for row in rows)

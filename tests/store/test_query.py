"""Queries see every row once, wherever it is, and nothing but the documented tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.fixtures.databases import open_migrated_store
from tests.store.builders import NOW, append, execute, report_intake
from tests.store.conftest import BACKENDS, ON_SQLITE, migrated_database
from tests.store.lake.lakes import delete_moved, move_to_lake, put_ended_run
from trmon.domain.errors import InvalidInput, NotReady, TrmonError
from trmon.store import Store
from trmon.store.archive.runs import WhatIfSteps, effects_on
from trmon.store.lake.runs import lake_runs
from trmon.store.query import QUERY_TABLES, Queries, TableRows, open_session, table_columns
from trmon.store.schema import tables
from trmon_client.core.policies.policy import Policy


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def filled(store: Store, lake: str) -> Queries:
    """Return queries over a run in the lake and one that continues."""
    put_ended_run(store, "moved", steps=3)
    move_to_lake(store, lake)
    put_ended_run(store, "here", steps=2)
    return store.queries(lake)


@pytest.fixture(scope="module", params=BACKENDS)
def shared_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for the tests that leave its batches and runs as they are."""
    with migrated_database(request, tmp_path_factory.mktemp("shared")) as url, closing(Store.open(url)) as opened:
        yield opened


@pytest.fixture(scope="module")
def queries(shared_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Queries:
    """Queries over a run in the lake and one that continues."""
    return filled(shared_store, str(tmp_path_factory.mktemp("shared") / "lake"))


def rows(queries: Queries, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    with queries.run(sql, now=NOW, **options) as result:
        return [tuple(row.values()) for row in result.read_all().to_pylist()]


COUNTS = {
    **{table: {"moved": 1, "here": 1} for table in ("runs", "attempts", "alerts", "alert_events")},
    **{table: {"moved": 3, "here": 2} for table in ("batches", "decisions")},
    "sequences": {"moved": 24, "here": 16},
}


def test_every_row_is_there_once_before_and_after_retention(shared_store: Store, queries: Queries) -> None:
    def counts() -> dict[str, dict[str, int]]:
        found = {table: rows(queries, f"SELECT run, count(*) FROM {table} GROUP BY run") for table in COUNTS}
        return {table: dict(counted) for table, counted in found.items()}

    assert counts() == COUNTS
    delete_moved(shared_store)
    assert counts() == COUNTS


@ON_SQLITE
def test_rows_of_a_batch_that_is_moving_are_read_from_the_database(store: Store, lake: str) -> None:
    put_ended_run(store, "moving")

    def stop(point: str) -> None:
        if point == "verified":
            raise InterruptedError(point)

    with pytest.raises(InterruptedError):
        store.lake(lake).move_next(now=NOW + 100, after_seconds=0.0, at_point=stop)
    queries = store.queries(lake)
    assert rows(queries, "SELECT run, month FROM batches") == [("moving", None)] * 3
    move_to_lake(store, lake)
    assert rows(queries, "SELECT run, month FROM batches") == [("moving", "2027-01")] * 3


@ON_SQLITE
def test_sequences_that_came_after_the_move_are_read_from_the_database(store: Store, lake: str) -> None:
    queries = filled(store, lake)
    append(store, report_intake("math", "moved", step=7, seed=7), now=NOW + 2000)
    found = "SELECT step, count(*) FROM sequences WHERE run = 'moved' GROUP BY step ORDER BY step"
    assert rows(queries, found) == [(step, 8) for step in (0, 1, 2, 7)]


def test_an_alert_of_a_moved_run_is_as_it_is_now(shared_store: Store, queries: Queries) -> None:
    execute(shared_store, update(tables.alert).values(acked_by="ana"))
    assert rows(queries, "SELECT DISTINCT acked_by FROM alerts") == [("ana",)]


@ON_SQLITE
def test_a_run_that_is_being_deleted_is_left_out(store: Store, lake: str) -> None:
    queries = filled(store, lake)
    [(run_id,)] = rows(queries, "SELECT run_id FROM runs WHERE run = 'moved'")
    execute(store, insert(tables.lake_deletion).values(run_id=run_id, project="math", asked_at=NOW))
    assert rows(queries, "SELECT DISTINCT run FROM batches") == [("here",)]


@ON_SQLITE
def test_a_lake_of_two_databases_shows_the_runs_of_both(store: Store, lake: str) -> None:
    queries = filled(store, lake)
    execute(store, update(tables.database_identity).values(id="another"))
    counted = "SELECT run, database_id = 'another', count(*) FROM {} GROUP BY ALL ORDER BY ALL"
    # The identity of the database changed, so that its rows are those of another one.
    for table, n in (("batches", (2, 3)), ("alerts", (1, 1))):
        assert ("here", True, n[0]) in rows(queries, counted.format(table))
        assert ("moved", False, n[1]) in rows(queries, counted.format(table))


def test_a_run_has_the_sizes_of_all_its_attempts(queries: Queries) -> None:
    wanted = "run, n_attempts, first_step, newest_step, n_batches, n_sequences, state"
    assert rows(queries, f"SELECT {wanted} FROM runs ORDER BY run") == [
        ("here", 1, 0, 1, 2, 16, "finished"),
        ("moved", 1, 0, 2, 3, 24, "finished"),
    ]


def test_tables_join_and_may_be_read_twice(queries: Queries) -> None:
    twice = "batches AS a JOIN batches AS b USING (database_id, attempt_id)"
    joined = f"SELECT count(*) FROM {twice} JOIN runs ON runs.run_id = a.run_id"
    assert rows(queries, joined) == [(3 * 3 + 2 * 2,)]


@ON_SQLITE
def test_without_a_lake_the_database_answers(store: Store) -> None:
    put_ended_run(store, "here")
    assert rows(store.queries(None), "SELECT run, signals['total_kl_k3'] FROM batches LIMIT 1") == [("here", 0.001)]


def test_a_query_reads_the_row_groups_of_its_run_and_step_only(queries: Queries) -> None:
    [(_, plan)] = rows(queries, "EXPLAIN SELECT run FROM batches WHERE run_id = 1 AND step = 2")
    of_lake = plan[plan.index("lake_batch_id") :]
    assert '"run_id" = 1' in of_lake
    assert '"step" = 2' in of_lake
    assert "signals" not in plan


def test_the_described_columns_are_those_of_the_views(queries: Queries) -> None:
    for name, columns in table_columns().items():
        with queries.run(f"SELECT * FROM {name} LIMIT 0", now=NOW) as result:
            assert sorted(result.schema.names) == sorted(columns), name
    assert [line.partition(":")[0] for line in queries.describe().splitlines()] == list(table_columns())
    assert len(QUERY_TABLES) == 9


@ON_SQLITE
def test_an_unreachable_lake_is_named(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    (broken / "batches" / "_delta_log").mkdir(parents=True)
    (broken / "batches" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(NotReady, match="broken"):
        rows(store.queries(str(broken)), "SELECT 1 FROM batches")


def run(sql: str, *, memory: str = "1GB") -> list[dict[str, object]]:
    """Return the rows of a query over tables without rows."""
    with open_session(memory=memory) as session:
        named = session.named_tables(sql)
        rows = {table.name: TableRows(table.schema.empty_table()) for table in named}
        found: list[dict[str, object]] = session.run(sql, rows).read_all().to_pylist()
        return found


REFUSED = [
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
    "SELECT * FROM delta_scan('{file}')",
    "SELECT * FROM sqlite_scan('{file}', 'token')",
    "SELECT getenv('HOME')",
    "SELECT * FROM store",
]
STATEMENTS = [
    "COPY (SELECT 1) TO '{file}.csv'",
    "ATTACH '{file}' AS other",
    "INSTALL httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "CREATE TABLE copied AS SELECT 1",
    "DELETE FROM runs",
    "SELECT 1; SELECT 2",
    "",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_a_query_reads_no_file_no_network_and_no_variable(tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    with pytest.raises(TrmonError):
        run(sql.format(file=file))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_only_one_select_is_run(tmp_path: Path, sql: str) -> None:
    with pytest.raises(InvalidInput, match="one SELECT"):
        run(sql.format(file=tmp_path / "file"))
    assert not (tmp_path / "file.csv").exists()


WRONG = [
    ("SELECT 1 FROM nowhere", "the tables are runs, attempts, batches, sequences"),
    ("SELEC 1", "the tables are runs, attempts"),
    ("SELECT nope FROM batches", "batches has project, month, database_id"),
    ("SELECT CAST('a' AS INT)", "Could not convert"),
]


@pytest.mark.parametrize(("sql", "said"), WRONG)
def test_an_error_says_what_there_is(sql: str, said: str) -> None:
    with pytest.raises(TrmonError, match=said):
        run(sql)


def test_more_than_the_memory_is_refused() -> None:
    with pytest.raises(TrmonError, match="Out of Memory"):
        run("SELECT list(range) FROM range(10000000)", memory="20MB")
    with pytest.raises(InvalidInput, match="--memory: 'lots' is not a size"):
        run("SELECT 1", memory="lots")


def test_what_exceeds_the_memory_goes_to_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [row] = run("SELECT count(*) AS n FROM (SELECT range FROM range(4000000) ORDER BY hash(range))", memory="40MB")
    assert row["n"] == 4_000_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1", ()),
        ('WITH mine AS (SELECT 1 FROM Batches) SELECT * FROM mine, "notes"', ("batches", "notes")),
        ("SELECT run FROM runs", ("attempts",)),
    ],
)
def test_the_named_tables_are_found(sql: str, names: tuple[str, ...]) -> None:
    with open_session(memory="1GB") as session:
        assert tuple(table.name for table in session.named_tables(sql)) == names


BOUND = {"name": "bound", "criteria": [{"statistic": "max_binary_kl", "pair": "total", "upper": 0.02}]}


def test_sql_and_a_what_if_read_a_bucket(bucket_url: str, tmp_path: Path) -> None:
    store = open_migrated_store(tmp_path / "trmon.sqlite")
    put_ended_run(store, "moved", steps=4)
    move_to_lake(store, bucket_url)
    delete_moved(store)
    put_ended_run(store, "here", steps=1)
    counted = "SELECT run, count(*), sum((total_max_binary_kl > 0.02)::INT) FROM sequences GROUP BY run ORDER BY run"
    with store.queries(bucket_url).run(counted, now=NOW) as result:
        rows = [tuple(row.values()) for row in result.read_all().to_pylist()]
    store.close()
    [run] = lake_runs(bucket_url)
    [effect], covered = effects_on(run, [Policy.parse(BOUND)], WhatIfSteps())
    assert [row[:2] for row in rows] == [("here", 8), ("moved", 32)]
    assert rows[1] == ("moved", effect.total.n, effect.total.rejected)
    assert (covered.n_steps, covered.n_missing) == (4, 0)

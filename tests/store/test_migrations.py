"""Tests migrations: they match the code, index frequent queries, keep rows, and say which versions work over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, Select, delete, func, insert, select

from tests.fixtures.versions import NEXT_REVISION, next_version
from tests.store.builders import append, report_intake, stored_reports
from tests.store.conftest import BACKENDS
from tests.store.schema_changes import Schema, breaking_changes, create_first_schema
from trmon.domain.errors import NotReady
from trmon.store import Store, migrations
from trmon.store.database import engines_of, sqlite
from trmon.store.database.engines import Engines
from trmon.store.schema import tables


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database without tables."""
    empty = f"sqlite:///{tmp_path}/trmon.db"
    url = empty if request.param == "sqlite" else request.getfixturevalue("postgres_server").database()
    opened = engines_of(url)
    yield opened.writing
    opened.dispose()


def pretend_newer(engine: Engine, *, oldest_reader: str | None) -> None:
    """Make the schema one of a newer trmon, for versions from `oldest_reader` on; None does not say for which."""
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.execute(delete(tables.schema_compatibility))
        if oldest_reader is not None:
            connection.execute(insert(tables.schema_compatibility).values(oldest_reader=oldest_reader))


@pytest.mark.parametrize("create", [None, create_first_schema], ids=["new", "of 0.2.0"])
def test_the_migrated_schema_matches_the_code(engine: Engine, create: Callable[[Engine], None] | None) -> None:
    if create is not None:
        create(engine)
    migrations.upgrade_schema(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
        migrations.check_revision(connection)


_report, _notice, _batch, _claim = tables.report.c, tables.notice.c, tables.batch.c, tables.claim.c
_policy, _alert = tables.policy_version.c, tables.alert.c
FREQUENT: dict[str, Select[Any]] = {
    "a run's new reports": select(_report.id).where(_report.run_id == 1, _report.id > 1).order_by(_report.id),
    "a run's new notices": select(_notice.id).where(_notice.run_id == 1, _notice.id > 1).order_by(_notice.id),
    "reports of a batch": select(_report.id).where(
        _report.attempt_id == 1, _report.step == 1, _report.update_index == -1
    ),
    "recent reports": select(_report.run_id, func.max(_report.id)).where(_report.id > 1).group_by(_report.run_id),
    "a run's newest batches": select(_batch.id).where(_batch.run_id == 1).order_by(_batch.ordinal.desc()),
    "an attempt's history": select(_batch.id).where(_batch.attempt_id == 1).order_by(_batch.ordinal),
    "when a run was last seen": select(func.max(_claim.seen_at)).where(_claim.run_id == 1),
    "a run by name": select(tables.run.c.id).where(tables.run.c.project == "a", tables.run.c.name == "b"),
    "a run's policy": select(_policy.hash).where(_policy.run_id == 1).order_by(_policy.id.desc()),
    "a run's alerts": select(_alert.id).where(_alert.run_id == 1).order_by(_alert.id.desc()),
    "due deliveries": select(tables.delivery.c.id).where(
        tables.delivery.c.state == "due", tables.delivery.c.due_at <= 1.0
    ),
    "new events": select(tables.event.c.id).where(tables.event.c.id > 1).order_by(tables.event.c.id),
}


def test_frequent_queries_use_an_index(engines: Engines) -> None:
    with engines.reader.connect() as connection:
        if engines.is_shared:  # PostgreSQL scans small tables because that is faster.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN (COSTS OFF)" if engines.is_shared else "EXPLAIN QUERY PLAN"
        for name, query in FREQUENT.items():
            written = query.limit(9).compile(connection, compile_kwargs={"literal_binds": True})
            plan = [str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {written}")]
            reads = [line for line in plan if "Seq Scan" in line or line.startswith(("SCAN", "SEARCH"))]
            assert all("USING" in line for line in reads), (name, plan)


def test_autoincrement_tables_never_reuse_ids(tmp_path: Path) -> None:
    engine = sqlite.writer_engine(tmp_path / "trmon.db")
    migrations.upgrade_schema(engine)
    with engine.connect() as connection:
        made = {
            row[0]
            for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
        }
    engine.dispose()
    assert made == {table.name for table in tables.metadata.tables.values() if _autoincrements(table)}


def _autoincrements(table: tables.Table) -> bool:
    return bool(table.dialect_options["sqlite"]["autoincrement"])


def test_an_empty_database_has_no_schema(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(NotReady, match="has schema none, this version needs 0001"):
        migrations.check_revision(connection)


def test_upgrading_twice_keeps_the_rows(store: Store) -> None:
    [receipt] = append(store, report_intake())
    store.migrate()
    assert len(stored_reports(store, receipt.run_id)) == 1


def test_a_newer_schema_that_allows_this_version_is_used_and_left_as_it_is(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    pretend_newer(engine, oldest_reader="0001")
    migrations.upgrade_schema(engine)
    with engine.connect() as connection:
        migrations.check_revision(connection)
        assert migrations.is_newer(connection)
        assert not migrations.is_older(connection)
        assert migrations.schema_revision(connection) == "9999"


@pytest.mark.parametrize("oldest_reader", ["9999", None], ids=["for newer versions", "does not say for whom"])
def test_a_newer_schema_that_does_not_allow_this_version_is_refused(engine: Engine, oldest_reader: str | None) -> None:
    migrations.upgrade_schema(engine)
    pretend_newer(engine, oldest_reader=oldest_reader)
    refusal = "schema 9999, which a newer trmon wrote; use that version, or restore a backup"
    with engine.connect() as connection, pytest.raises(NotReady, match=refusal):
        migrations.check_revision(connection)
    with pytest.raises(NotReady, match=refusal):
        migrations.upgrade_schema(engine)


@pytest.mark.server("postgres")
def test_the_next_migration_gives_way_to_a_reader_lets_writers_pass_and_leaves_readers_of_before(
    postgres_url: str, tmp_path: Path
) -> None:
    later = next_version(tmp_path)
    opened = engines_of(postgres_url)
    with opened.reader.connect() as reader, ThreadPoolExecutor() as pool:
        before = Schema.read(reader)
        reader.exec_driver_sql("SELECT * FROM report")
        migrating = pool.submit(later.command, "migrate", database_url=postgres_url)
        for _ in range(3):
            with opened.writing.begin() as writer:
                writer.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
                writer.exec_driver_sql("DELETE FROM report")
            time.sleep(0.5)
        assert not migrating.done()
        reader.rollback()
        ended = migrating.result(60)
        assert ended.returncode == 0, ended.stderr
    with opened.reader.connect() as reader:
        migrations.check_revision(reader)
        assert migrations.schema_revision(reader) == NEXT_REVISION
        assert breaking_changes(before, Schema.read(reader)) == []
    opened.dispose()

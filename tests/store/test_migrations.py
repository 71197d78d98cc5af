"""Tests migrations: upgrades match the schema in the code and keep every row, and downgrades drop every table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, text

from tests.fixtures.postgres import Postgres
from tests.store.builders import append, report_intake, stored_reports
from tests.store.conftest import BACKENDS
from trmon.domain.model.errors import NotReady
from trmon.store import Store, migrations
from trmon.store.database import sqlite
from trmon.store.database.connect import engines_of
from trmon.store.schema import tables


@pytest.fixture(params=BACKENDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database without tables."""
    empty = f"sqlite:///{tmp_path}/trmon.db"
    url = empty if request.param == "sqlite" else request.getfixturevalue("postgres_server").database()
    opened = engines_of(url)
    yield opened.writing
    opened.dispose()


def pretend_newer(engine: Engine, *, oldest_reader: str) -> None:
    """Make the schema one of a newer trmon, for versions from `oldest_reader` on."""
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql(f"UPDATE schema_compatibility SET oldest_reader = '{oldest_reader}'")


def test_the_migrated_schema_matches_the_code(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
        migrations.check_revision(connection)


def test_the_error_for_a_newer_schema_does_not_suggest_migrating(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    pretend_newer(engine, oldest_reader="9999")
    with engine.connect() as connection, pytest.raises(NotReady, match="schema 9999, which a newer trmon wrote"):
        migrations.check_revision(connection)


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


def test_downgrading_to_base_drops_every_table(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    migrations.downgrade_schema(engine, revision="base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    with engine.connect() as connection, pytest.raises(NotReady, match="has schema none, this version needs 00"):
        migrations.check_revision(connection)


OLD_RUN = (
    "INSERT INTO project VALUES ('math', 1)",
    "INSERT INTO run (id, project, name, state, config, mode, created_at, archived) "
    "VALUES (7, 'math', 'grpo', 'running', '{}', 'observe', 1, FALSE)",
)


def put_old_delivery(connection: Connection, key: str, *, project: str, status: str) -> None:
    """Insert a delivery in the format of the first schema."""
    body = json.dumps({"run": {"project": project, "run": "grpo"}, "status": status})
    columns = "receiver, dedup_key, body, state, attempts, due_at"
    old = text(f"INSERT INTO delivery ({columns}) VALUES ('hook', :key, :body, 'due', 2, 5)")
    connection.execute(old, {"key": key, "body": body})


def test_0002_links_deliveries_to_their_run_and_its_downgrade_restores_them(engine: Engine) -> None:
    migrations.upgrade_schema(engine, revision="0001")
    with engine.begin() as connection:
        for statement in OLD_RUN:
            connection.exec_driver_sql(statement)
        put_old_delivery(connection, "a", project="math", status="resolved")
        put_old_delivery(connection, "b", project="gone", status="firing")
        before = connection.exec_driver_sql("SELECT * FROM delivery").mappings().all()
    migrations.upgrade_schema(engine, revision="0002")
    new = "SELECT dedup_key, attempts, made_at, run_id, episode, told_state, rounds, muted FROM delivery"
    with engine.begin() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql(new)]
        connection.exec_driver_sql("UPDATE delivery SET state = 'muted' WHERE dedup_key = 'b'")
    assert found == [("a", 2, 5.0, 7, None, "resolved", 0, None), ("b", 2, 5.0, None, None, "firing", 0, None)]
    migrations.downgrade_schema(engine, revision="0001")
    with engine.connect() as connection:
        after = connection.exec_driver_sql("SELECT * FROM delivery").mappings().all()
    assert after == [before[0], {**before[1], "state": "delivered"}]


def test_downgrading_0004_makes_held_deliveries_due(engine: Engine) -> None:
    migrations.upgrade_schema(engine, revision="0003")
    alert = (
        "INSERT INTO alert (run_id, identity, attempt_id, step, update_index, rule, severity, state, since_at, "
        "updated_at, summary, labels, runbook) "
        "VALUES (7, '7/crashed', 1, 2, -1, 'crashed', 'page', 'firing', 1, 1, 's', '{}', 'r')"
    )
    held = (
        "INSERT INTO delivery (receiver, dedup_key, body, state, attempts, due_at, made_at, told_state, rounds) "
        "VALUES ('hook', 'k', '{}', 'held', 0, 5, 5, 'firing', 0)"
    )
    silence = (
        "INSERT INTO silence (matchers, author, note, starts_at, ends_at) VALUES ('[]', 'ana', '', 1, 2)",
        "UPDATE alert SET acked_by = 'ana', acked_at = 3, ack_note = ''",
    )
    with engine.begin() as connection:
        for statement in (*OLD_RUN, alert):
            connection.exec_driver_sql(statement)
        before = connection.exec_driver_sql("SELECT * FROM alert").mappings().one()
    migrations.upgrade_schema(engine, revision="0004")
    with engine.begin() as connection:
        after = connection.exec_driver_sql("SELECT * FROM alert").mappings().one()
        for statement in (held, *silence):
            connection.exec_driver_sql(statement)
    assert after == {**before, "acked_by": None, "acked_at": None, "ack_note": None}
    migrations.downgrade_schema(engine, revision="0003")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT * FROM alert").mappings().one() == before
        assert connection.exec_driver_sql("SELECT state FROM delivery").scalar_one() == "due"
        assert not inspect(connection).has_table("silence")


def test_0008_keeps_existing_claims(engine: Engine) -> None:
    migrations.upgrade_schema(engine, revision="0007")
    rows = (
        *OLD_RUN,
        "INSERT INTO attempt (id, run_id, name, ordinal, started_at, world_size, ranks_unverified) "
        "VALUES (1, 7, 'a', 1, 1, 1, FALSE)",
        "INSERT INTO claim (attempt_id, rank, run_id, launch, seen_at, ended) VALUES (1, 0, 7, 'one', 5, FALSE)",
    )
    with engine.begin() as connection:
        for statement in rows:
            connection.exec_driver_sql(statement)
        before = connection.exec_driver_sql("SELECT * FROM claim").mappings().one()
    migrations.upgrade_schema(engine, revision="0008")
    with engine.connect() as connection:
        after = connection.exec_driver_sql("SELECT * FROM claim").mappings().one()
    assert after == {**before, "began_at": None, "beat_at": None}
    migrations.downgrade_schema(engine, revision="0007")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT * FROM claim").mappings().one() == before


def test_upgrading_twice_keeps_the_rows(store: Store) -> None:
    [receipt] = append(store, report_intake())
    store.migrate()
    assert len(stored_reports(store, receipt.run_id)) == 1


def test_upgrading_a_newer_schema_is_refused(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    pretend_newer(engine, oldest_reader="9999")
    with pytest.raises(NotReady, match="schema 9999, which a newer trmon wrote; use that version, or restore a backup"):
        migrations.upgrade_schema(engine)


def test_a_newer_schema_that_allows_this_version_is_used_and_left_as_it_is(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    pretend_newer(engine, oldest_reader=migrations.CONTRACT_REVISION)
    migrations.upgrade_schema(engine)
    with engine.connect() as connection:
        migrations.check_revision(connection)
        assert migrations.is_newer(connection)
        assert not migrations.is_older(connection)
        assert migrations.schema_revision(connection) == "9999"


def test_a_newer_schema_that_does_not_say_for_whom_it_is_is_refused(engine: Engine) -> None:
    migrations.upgrade_schema(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql("DELETE FROM schema_compatibility")
    with pytest.raises(NotReady, match="schema 9999, which a newer trmon wrote"):
        migrations.upgrade_schema(engine)


@pytest.mark.server("postgres")
def test_a_migration_gives_way_to_a_reader_and_lets_writers_pass_meanwhile(postgres_server: Postgres) -> None:
    opened = engines_of(postgres_server.database())
    migrations.upgrade_schema(opened.writing, revision="0007")
    with opened.reader.connect() as reader, ThreadPoolExecutor() as pool:
        reader.exec_driver_sql("SELECT * FROM claim")
        migrating = pool.submit(migrations.upgrade_schema, opened.writing)
        for _ in range(3):
            with opened.writing.begin() as writer:
                writer.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
                writer.exec_driver_sql("DELETE FROM claim")
            time.sleep(0.3)
        assert not migrating.done()
        reader.rollback()
        migrating.result(60)
    with opened.reader.connect() as reader:
        migrations.check_revision(reader)
    opened.dispose()

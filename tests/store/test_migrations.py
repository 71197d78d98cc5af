"""Migrations: up to the schema in the code, down to nothing, and never a row lost on the way up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect

from tests.store.builders import append, report_intake
from trmon.domain.errors import NotReady
from trmon.store import Store, migrations, schema, sqlite


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A database without tables."""
    opened = sqlite.writer_engine(tmp_path / "trmon.db")
    yield opened
    opened.dispose()


def test_the_migrated_schema_is_the_one_in_the_code(engine: Engine) -> None:
    migrations.upgrade(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        migrations.check(connection)


def test_generated_ids_are_never_used_again_where_the_code_says_so(engine: Engine) -> None:
    migrations.upgrade(engine)
    with engine.connect() as connection:
        made = {
            row[0]
            for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
        }
    assert made == {table.name for table in schema.metadata.tables.values() if _autoincrements(table)}


def _autoincrements(table: schema.Table) -> bool:
    return bool(table.dialect_options["sqlite"]["autoincrement"])


def test_down_to_the_base_nothing_is_left(engine: Engine) -> None:
    migrations.upgrade(engine)
    migrations.downgrade(engine, revision="base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    with engine.connect() as connection, pytest.raises(NotReady, match="has schema none, this version needs 00"):
        migrations.check(connection)


OLD_RUN = (
    "INSERT INTO project VALUES ('math', 1)",
    "INSERT INTO run (id, project, name, state, config, mode, created_at, archived) "
    "VALUES (7, 'math', 'grpo', 'running', '{}', 'observe', 1, 0)",
)


def put_old_delivery(connection: Connection, key: str, *, project: str, status: str) -> None:
    """Write a delivery as the first schema has it."""
    body = json.dumps({"run": {"project": project, "run": "grpo"}, "status": status})
    connection.exec_driver_sql(
        "INSERT INTO delivery (receiver, dedup_key, body, state, attempts, due_at) VALUES (?, ?, ?, 'due', 2, 5)",
        ("hook", key, body),
    )


def test_deliveries_from_before_are_of_their_run_and_come_back_as_they_were(engine: Engine) -> None:
    migrations.upgrade(engine, revision="0001")
    with engine.begin() as connection:
        for statement in OLD_RUN:
            connection.exec_driver_sql(statement)
        put_old_delivery(connection, "a", project="math", status="resolved")
        put_old_delivery(connection, "b", project="gone", status="firing")
        before = connection.exec_driver_sql("SELECT * FROM delivery").mappings().all()
    migrations.upgrade(engine, revision="0002")
    new = "SELECT dedup_key, attempts, made_at, run_id, episode, told_state, rounds, muted FROM delivery"
    with engine.begin() as connection:
        found = [tuple(row) for row in connection.exec_driver_sql(new)]
        connection.exec_driver_sql("UPDATE delivery SET state = 'muted' WHERE dedup_key = 'b'")
    assert found == [("a", 2, 5.0, 7, None, "resolved", 0, None), ("b", 2, 5.0, None, None, "firing", 0, None)]
    migrations.downgrade(engine, revision="0001")
    with engine.connect() as connection:
        after = connection.exec_driver_sql("SELECT * FROM delivery").mappings().all()
    assert after == [before[0], {**before[1], "state": "delivered"}]


def test_upgrading_again_keeps_what_is_there(store: Store) -> None:
    [receipt] = append(store, report_intake())
    store.migrate()
    assert len(store.reports.after(receipt.run_id, 0, limit=10)) == 1

"""Migrations: up to the schema in the code, down to nothing, and never a row lost on the way up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect

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
    with engine.connect() as connection, pytest.raises(NotReady, match="has schema none, this version needs 0001"):
        migrations.check(connection)


def test_upgrading_again_keeps_what_is_there(store: Store) -> None:
    [receipt] = append(store, report_intake())
    store.migrate()
    assert len(store.reports.after(receipt.run_id, 0, limit=10)) == 1

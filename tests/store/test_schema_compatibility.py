"""Tests the contract of migrations: each is additive, or says that older versions of trmon must go first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from tests.fixtures.postgres import Postgres
from tests.store.schema_changes import Schema, breaking_changes, create_first_schema
from trmon.store import migrations
from trmon.store.database import engines_of

pytestmark = pytest.mark.server("postgres")

REVISIONS = sorted(script.revision for script in ScriptDirectory(migrations.__path__[0]).walk_revisions())


@pytest.fixture(scope="module")
def engine(postgres_server: Postgres) -> Iterator[Engine]:
    """A database with the schema of the first migration."""
    url = postgres_server.database()
    opened = engines_of(url)
    create_first_schema(opened.writing)
    yield opened.writing
    opened.dispose()
    postgres_server.drop(url)


def schema_of(engine: Engine) -> Schema:
    with engine.connect() as connection:
        return Schema.read(connection)


def test_each_migration_is_additive_or_raises_the_oldest_reader(engine: Engine) -> None:
    before = schema_of(engine)
    for former, revision in pairwise(REVISIONS):
        with engine.begin() as connection:
            command.upgrade(migrations.alembic_config(connection), revision)
        after = schema_of(engine)
        is_raised = migrations.oldest_reader_of(revision) != migrations.oldest_reader_of(former)
        breaking = breaking_changes(before, after)
        assert is_raised or not breaking, (
            f"migration {revision}: {'; '.join(breaking)}. Add only tables and columns that may be null; what must go "
            "goes with a later migration, whose oldest_reader is the first revision without use for it"
        )
        before = after
    migrations.upgrade_schema(engine)
    assert schema_of(engine) == before


def test_a_new_database_has_the_schema_of_an_upgraded_one(engine: Engine, postgres_server: Postgres) -> None:
    migrations.upgrade_schema(engine)
    url = postgres_server.database()
    opened = engines_of(url)
    migrations.upgrade_schema(opened.writing)
    new = schema_of(opened.writing)
    opened.dispose()
    postgres_server.drop(url)
    assert new == schema_of(engine)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_oldest_reader_is_a_revision_and_never_falls(revision: str) -> None:
    declared = migrations.oldest_reader_of(revision)
    assert declared in REVISIONS
    assert declared <= revision
    module = ScriptDirectory(migrations.__path__[0]).get_revision(revision).module
    assert module.oldest_reader == declared, "it is lower than that of a migration before"


def test_revisions_are_four_digits_because_they_are_compared_as_text() -> None:
    assert [f"{n:04}" for n in range(1, len(REVISIONS) + 1)] == REVISIONS


BREAKING = (
    ("ALTER TABLE run DROP COLUMN owner", "run.owner is gone"),
    ("DROP TABLE quota", "quota.max_bytes is gone"),
    ("ALTER TABLE run ALTER last_step TYPE integer", "run.last_step was bigint and is integer"),
    ("ALTER TABLE run ALTER owner SET NOT NULL", "run.owner may not be null any more"),
    ("ALTER TABLE run ALTER mode DROP NOT NULL", "run.mode may be null, which readers do not expect"),
    ("ALTER TABLE run ALTER id DROP DEFAULT", "run.id has no default any more"),
    ("ALTER TABLE run ADD colour text NOT NULL", "run.colour is new, required and without default"),
    ("ALTER TABLE run ADD CHECK (id > 0)", "run has a new constraint run_id_check: CHECK ((id > 0))"),
    ("CREATE INDEX ix_a ON run (owner)", "run cannot be written while its index ix_a is built"),
    ("CREATE UNIQUE INDEX ix_b ON run (owner)", "run cannot be written while its index ix_b is built"),
    ("ALTER TABLE note DROP CONSTRAINT pk_note", "note has no constraint pk_note any more, which inserts may rest on"),
    ("DROP INDEX ix_token_name", "token has no index ix_token_name any more, which inserts may rest on"),
    (
        "CREATE TABLE colour (id bigint REFERENCES run)",
        "colour keeps rows of run from being deleted: FOREIGN KEY (id) REFERENCES run(id)",
    ),
)
ADDITIVE = (
    "ALTER TABLE run ADD colour text",
    "ALTER TABLE run ADD colour text NOT NULL DEFAULT ''",
    "CREATE TABLE colour (id bigint PRIMARY KEY REFERENCES run ON DELETE CASCADE, name text UNIQUE)",
    "DROP INDEX ix_note_run_id",
)


def changed(engine: Engine, statement: str) -> list[str]:
    """Return what a statement, which is rolled back, breaks."""
    with engine.connect() as connection:
        before = Schema.read(connection)
        connection.exec_driver_sql(statement)
        found = breaking_changes(before, Schema.read(connection))
        connection.rollback()
    return found


@pytest.mark.parametrize(("statement", "found"), BREAKING)
def test_a_change_that_older_processes_do_not_stand_is_found(engine: Engine, statement: str, found: str) -> None:
    assert found in changed(engine, statement)


@pytest.mark.parametrize("statement", ADDITIVE)
def test_an_additive_change_breaks_nothing(engine: Engine, statement: str) -> None:
    assert changed(engine, statement) == []

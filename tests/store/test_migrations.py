"""Migrations: they match the code, index frequent queries and keep rows; each is additive or says who must go first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, Select, delete, func, insert, select
from zstandard import ZstdDecompressor

from tests.fixtures.postgres import Postgres
from tests.fixtures.versions import NEXT_REVISION, next_version
from tests.store.builders import append, report_intake, stored_reports
from tests.store.conftest import BACKENDS
from trmon.domain.errors import NotReady
from trmon.store import Store, migrations
from trmon.store.database import engines_of, sqlite
from trmon.store.database.engines import Engines
from trmon.store.schema import tables

_FIRST_SCHEMA = Path(__file__).with_name("schema_0001.sql")
_FIRST_FILE = Path(__file__).parents[1] / "fixtures" / "data_of_0_2_0" / "trmon.sqlite.zst"

Key: TypeAlias = tuple[str, str]
"""A table and the name of its column, constraint or index."""

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attidentity = '' AND NOT a.atthasdef, a.attstorage::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), contype::text, confrelid::regclass::text,
       confdeltype::text
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""
_INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'public' AND NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conname = indexname AND conrelid = format('public.%I', tablename)::regclass)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tables of a database: rows of the catalogue by table and name."""

    columns: dict[Key, Any]
    constraints: dict[Key, Any]
    indexes: dict[Key, Any]

    @classmethod
    def read(cls, connection: Connection) -> Schema:
        read = [
            {(row[0], row[1]): row[2:] for row in connection.exec_driver_sql(query.replace("%", "%%"))}
            for query in (_COLUMNS, _CONSTRAINTS, _INDEXES)
        ]
        return cls(columns=read[0], constraints=read[1], indexes=read[2])

    @property
    def tables(self) -> set[str]:
        return {table for table, _ in self.columns}


def create_first_schema(engine: Engine) -> None:
    """Create the tables of 0.2.0 in an empty PostgreSQL database, or write a file of it before it is opened."""
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").write_bytes(ZstdDecompressor().decompress(_FIRST_FILE.read_bytes()))
        return
    with engine.begin() as connection:
        for statement in _FIRST_SCHEMA.read_text().rstrip().removesuffix(";").split(";\n"):
            connection.exec_driver_sql(statement)


def breaking_changes(before: Schema, after: Schema) -> list[str]:
    """Return what processes of the schema before do not stand, sorted; empty if it is additive."""
    return sorted([*_columns(before, after), *_constraints(before, after), *_indexes(before, after)])


def _columns(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (kind, is_required, has_default, *_) in before.columns.items():
        now = after.columns.get((table, name))
        if now is None:
            yield f"{table}.{name} is gone"
        elif now[0] != kind:
            yield f"{table}.{name} was {kind} and is {now[0]}"
        elif now[1] and not is_required:
            yield f"{table}.{name} may not be null any more"
        elif is_required and not now[1]:
            yield f"{table}.{name} may be null, which readers do not expect"
        elif has_default and not now[2]:
            yield f"{table}.{name} has no default any more"
    for (table, name), (_, is_required, _, has_no_default, _) in after.columns.items():
        is_new = table in before.tables and (table, name) not in before.columns
        if is_new and is_required and has_no_default:
            yield f"{table}.{name} is new, required and without default"


def _constraints(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (definition, kind, target, on_delete) in after.constraints.items():
        if kind == "n" or before.constraints.get((table, name), (None,))[0] == definition:
            continue
        if table in before.tables:
            yield f"{table} has a new constraint {name}: {definition}"
        elif kind == "f" and target in before.tables and on_delete not in ("c", "n"):
            yield f"{table} keeps rows of {target} from being deleted: {definition}"
    for (table, name), (_, kind, *_) in before.constraints.items():
        if kind in ("p", "u") and (table, name) not in after.constraints and table in after.tables:
            yield f"{table} has no constraint {name} any more, which inserts may rest on"


def _indexes(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (definition,) in after.indexes.items():
        if table in before.tables and before.indexes.get((table, name)) != (definition,):
            yield f"{table} cannot be written while its index {name} is built"
    for (table, name), (definition,) in before.indexes.items():
        if "UNIQUE" in definition and (table, name) not in after.indexes and table in after.tables:
            yield f"{table} has no index {name} any more, which inserts may rest on"


ON_SERVER = pytest.mark.server("postgres")


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


@ON_SERVER
def test_the_next_migration_stops_neither_readers_nor_writers(postgres_url: str, tmp_path: Path) -> None:
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


REVISIONS = sorted(script.revision for script in ScriptDirectory(migrations.__path__[0]).walk_revisions())


@pytest.fixture(scope="module")
def first(postgres_server: Postgres) -> Iterator[Engine]:
    """A database with the schema of the first migration."""
    url = postgres_server.database()
    opened = engines_of(url)
    create_first_schema(opened.writing)
    yield opened.writing
    opened.dispose()
    postgres_server.drop(url)


def schema_of(first: Engine) -> Schema:
    with first.connect() as connection:
        return Schema.read(connection)


@ON_SERVER
def test_each_migration_is_additive_or_raises_the_oldest_reader(first: Engine) -> None:
    before = schema_of(first)
    for former, revision in pairwise(REVISIONS):
        with first.begin() as connection:
            command.upgrade(migrations.alembic_config(connection), revision)
        after = schema_of(first)
        is_raised = migrations.oldest_reader_of(revision) != migrations.oldest_reader_of(former)
        breaking = breaking_changes(before, after)
        assert is_raised or not breaking, (
            f"migration {revision}: {'; '.join(breaking)}. Add only tables and columns that may be null; what must go "
            "goes with a later migration, whose oldest_reader is the first revision without use for it"
        )
        before = after
    migrations.upgrade_schema(first)
    assert schema_of(first) == before


@ON_SERVER
def test_a_new_database_has_the_schema_of_an_upgraded_one(first: Engine, postgres_server: Postgres) -> None:
    migrations.upgrade_schema(first)
    url = postgres_server.database()
    opened = engines_of(url)
    migrations.upgrade_schema(opened.writing)
    new = schema_of(opened.writing)
    opened.dispose()
    postgres_server.drop(url)
    assert new == schema_of(first)


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


def changed(first: Engine, statement: str) -> list[str]:
    """Return what a statement, which is rolled back, breaks."""
    with first.connect() as connection:
        before = Schema.read(connection)
        connection.exec_driver_sql(statement)
        found = breaking_changes(before, Schema.read(connection))
        connection.rollback()
    return found


@ON_SERVER
@pytest.mark.parametrize(("statement", "found"), BREAKING)
def test_a_change_that_older_processes_do_not_stand_is_found(first: Engine, statement: str, found: str) -> None:
    assert found in changed(first, statement)


@ON_SERVER
@pytest.mark.parametrize("statement", ADDITIVE)
def test_an_additive_change_breaks_nothing(first: Engine, statement: str) -> None:
    assert changed(first, statement) == []

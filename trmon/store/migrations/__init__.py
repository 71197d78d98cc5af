"""The schema migrations, which Alembic runs without an ini file.

A new database gets its tables as `trmon.store.schema.tables` has them; migrations change those of databases that exist.
A migration is online if processes of the version before work over its schema: it only adds tables, and columns that may
be null or have a default. One that is not raises `oldest_reader`, the revision that a trmon must know from then on.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from uuid import uuid4

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from psycopg import errors
from sqlalchemy import Connection, Engine, delete, insert, inspect, select

from trmon.domain.errors import NotReady
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_statement import AdvisoryLock, lock_exclusively
from trmon.store.schema import tables

LOCK_TIMEOUT_MS = 500
"""How long a migration waits for a table on PostgreSQL, since everybody else queues behind it. It is shorter than
PostgreSQL's deadlock_timeout of 1 s, so that a deadlock ends the migration and no writer."""
MAX_TRIES = 60
RETRY_SECONDS = 1.0
_COMPRESSED = ((tables.report, "payload"), (tables.chunk_axes, "axes"), (tables.signal_chunk, "data"))


def upgrade_schema(engine: Engine) -> None:
    """Upgrade the schema to this version's, in one transaction; a newer one that this version can use stays as it is.

    Errors: NotReady for a newer schema that this version cannot use, and if other transactions keep using a table.
    """
    for _ in range(MAX_TRIES):
        try:
            with engine.begin() as connection:
                _upgrade(connection)
            return
        except RetryTransaction:
            pass
        except NotReady as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
        time.sleep(RETRY_SECONDS)
    raise NotReady(
        "another transaction, such as a backup or a long query, holds a table that must change; nothing was migrated; "
        "run `trmon migrate` again once it has ended"
    )


def _upgrade(connection: Connection) -> None:
    lock_exclusively(connection, AdvisoryLock.MIGRATION)
    revision = _usable_revision(connection)
    # Alembic takes 70 ms to find out that there is nothing to do.
    if revision == _head() or _is_of_newer(revision):
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    if revision is None:
        tables.metadata.create_all(connection, checkfirst=False)
        # Under this identity a lake holds the database's rows.
        connection.execute(insert(tables.database_identity).values(id=str(uuid4())))
        for table, column in _COMPRESSED if connection.dialect.name == "postgresql" else ():
            # PostgreSQL would try to compress them again.
            connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
        command.stamp(alembic_config(connection), "head")
    else:
        command.upgrade(alembic_config(connection), "head")
    oldest = oldest_reader_of(schema_revision(connection) or "")
    connection.execute(delete(tables.schema_compatibility))
    connection.execute(insert(tables.schema_compatibility).values(oldest_reader=oldest))


def check_revision(connection: Connection) -> None:
    """Raise NotReady unless this version works over the schema: its own, or a newer one that allows it."""
    revision = _usable_revision(connection)
    if revision != _head() and not _is_of_newer(revision):
        raise NotReady(
            f"the database has schema {revision or 'none'}, this version needs {_head()}; run `trmon migrate`"
        )


def is_older(connection: Connection) -> bool:
    """Whether the schema is older than this version's. Errors: NotReady if it is newer and not for this version."""
    revision = _usable_revision(connection)
    return revision not in (None, _head()) and not _is_of_newer(revision)


def is_newer(connection: Connection) -> bool:
    """Whether a newer trmon wrote the schema."""
    return _is_of_newer(schema_revision(connection))


def schema_revision(connection: Connection) -> str | None:
    """Return the schema revision of a database; None if it has no schema."""
    return MigrationContext.configure(connection).get_current_revision()


def knows_revision(revision: str) -> bool:
    """Whether a schema of this revision can be upgraded to this version's."""
    return any(script.revision == revision for script in _scripts())


def oldest_reader_of(revision: str) -> str:
    """Return the revision that a trmon must know to work over a schema."""
    declared: list[str] = [script.module.oldest_reader for script in _scripts() if script.revision <= revision]
    return max(declared)


def _is_of_newer(revision: str | None) -> bool:
    return revision is not None and not knows_revision(revision)


def _usable_revision(connection: Connection) -> str | None:
    """Return the schema revision. Errors: NotReady for a newer schema unless it says that this version can use it."""
    revision = schema_revision(connection)
    if _is_of_newer(revision):
        oldest: str | None = None
        if inspect(connection).has_table(tables.schema_compatibility.name):
            oldest = connection.scalar(select(tables.schema_compatibility.c.oldest_reader))
        if oldest is None or not knows_revision(oldest):
            raise NotReady(
                f"the database has schema {revision}, which a newer trmon wrote; use that version, or restore a backup"
            )
    return revision


@cache
def _scripts() -> tuple[Script, ...]:
    """Return the migrations, newest first."""
    return tuple(ScriptDirectory.from_config(alembic_config()).walk_revisions())


def _head() -> str:
    return _scripts()[0].revision


def alembic_config(connection: Connection | None = None) -> Config:
    """Return the configuration with which Alembic runs over a connection, in its transaction."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config

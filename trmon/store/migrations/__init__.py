"""The schema migrations, which Alembic runs without an ini file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from trmon.domain.model.errors import NotReady
from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import AdvisoryLock


def upgrade_schema(engine: Engine, *, revision: str = "head") -> None:
    """Upgrade the schema to a revision, in one transaction. Errors: NotReady, also for the schema of a newer trmon."""
    with engine.begin() as connection:
        advisory_locks.lock_exclusively(connection, AdvisoryLock.MIGRATION)
        # Alembic takes 70 ms to find out that there is nothing to do.
        if revision == "head" and schema_revision(connection) == _head():
            return
        _check_known(connection)
        command.upgrade(_config(connection), revision)


def downgrade_schema(engine: Engine, *, revision: str) -> None:
    """Downgrade the schema to a revision, in one transaction; "base" is an empty database. Errors: NotReady."""
    with engine.begin() as connection:
        advisory_locks.lock_exclusively(connection, AdvisoryLock.MIGRATION)
        command.downgrade(_config(connection), revision)


def check_revision(connection: Connection) -> None:
    """Raise NotReady unless the schema is the one of this version."""
    revision = schema_revision(connection)
    if revision != _head():
        _check_known(connection)
        raise NotReady(
            f"the database has schema {revision or 'none'}, this version needs {_head()}; run `trmon migrate`"
        )


def is_older(connection: Connection) -> bool:
    """Whether the schema is older than this version's. Errors: NotReady if it is newer."""
    _check_known(connection)
    return schema_revision(connection) not in (None, _head())


def schema_revision(connection: Connection) -> str | None:
    """Return the schema revision of a database; None if it has no schema."""
    return MigrationContext.configure(connection).get_current_revision()


def knows_revision(revision: str) -> bool:
    """Whether a schema of this revision can be upgraded to this version's."""
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _check_known(connection: Connection) -> None:
    revision = schema_revision(connection)
    if revision is not None and not knows_revision(revision):
        raise NotReady(
            f"the database has schema {revision}, which a newer trmon wrote; use that version, or restore a backup"
        )


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config

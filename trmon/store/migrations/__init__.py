"""The schema's history, run by Alembic without an ini file."""

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
    """Bring the schema up to a revision, in one transaction. Errors: NotReady, also for a newer trmon's schema."""
    with engine.begin() as connection:
        advisory_locks.lock_exclusively(connection, AdvisoryLock.MIGRATION)
        _check_known(connection)
        command.upgrade(_config(connection), revision)


def downgrade_schema(engine: Engine, *, revision: str) -> None:
    """Bring the schema back to a revision, in one transaction; "base" is before the first. Errors: NotReady."""
    with engine.begin() as connection:
        advisory_locks.lock_exclusively(connection, AdvisoryLock.MIGRATION)
        command.downgrade(_config(connection), revision)


def check_revision(connection: Connection) -> None:
    """Raise NotReady unless the schema is this version's."""
    found = schema_revision(connection)
    if found != _head():
        _check_known(connection)
        raise NotReady(f"the database has schema {found or 'none'}, this version needs {_head()}; run `trmon migrate`")


def is_older(connection: Connection) -> bool:
    """Whether the schema is that of an older version. Errors: NotReady for a newer one's."""
    _check_known(connection)
    return schema_revision(connection) not in (None, _head())


def schema_revision(connection: Connection) -> str | None:
    """Return the revision of a database's schema, None where there is none."""
    return MigrationContext.configure(connection).get_current_revision()


def knows_revision(revision: str) -> bool:
    """Whether a schema of this revision can be brought up to this version's."""
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _check_known(connection: Connection) -> None:
    found = schema_revision(connection)
    if found is not None and not knows_revision(found):
        raise NotReady(f"the database has schema {found}, which a newer trmon wrote; use that one, or restore a backup")


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config

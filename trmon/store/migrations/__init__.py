"""The schema's history, run by Alembic without an ini file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from trmon.domain.errors import NotReady


def upgrade(engine: Engine, *, revision: str = "head") -> None:
    """Bring the schema up to a revision, in one transaction. Errors: NotReady."""
    with engine.begin() as connection:
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, *, revision: str) -> None:
    """Bring the schema back to a revision, in one transaction; "base" is before the first. Errors: NotReady."""
    with engine.begin() as connection:
        command.downgrade(_config(connection), revision)


def check(connection: Connection) -> None:
    """Raise NotReady unless the schema is this version's."""
    found = MigrationContext.configure(connection).get_current_revision()
    if found != _head():
        raise NotReady(f"the database has schema {found or 'none'}, this version needs {_head()}; run `trmon migrate`")


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config

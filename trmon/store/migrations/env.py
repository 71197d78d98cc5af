"""The script that Alembic runs for every command; trmon.store.migrations provides the connection and commits."""

from __future__ import annotations

from alembic import context

from trmon.store.schema.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()

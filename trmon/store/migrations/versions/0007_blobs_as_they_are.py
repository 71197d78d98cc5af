"""PostgreSQL keeps blobs as they are: they are compressed already, and it would try again with each.

Revision ID: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_BLOBS = (("report", "payload"), ("chunk_axes", "axes"), ("signal_chunk", "data"))


def upgrade() -> None:
    """Say so; SQLite never compresses."""
    _store("EXTERNAL")


def downgrade() -> None:
    """Let it try."""
    _store("EXTENDED")


def _store(how: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _BLOBS:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE {how}")

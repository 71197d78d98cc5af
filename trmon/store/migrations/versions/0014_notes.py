"""Notes on runs and steps.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "note",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_note_run_id", "note", ["run_id", "id"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("note")

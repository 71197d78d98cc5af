"""The audit log: who changed what.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create its table."""
    op.create_table(
        "audit",
        sa.Column("id", _ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("token_id", sa.BigInteger()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_project", "audit", ["project", "id"])
    op.create_index("ix_audit_at", "audit", ["at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("audit")

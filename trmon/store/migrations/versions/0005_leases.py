"""Which process owns which runs, where several share a database.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; the first process that asks for slots makes their rows."""
    op.create_table(
        "lease",
        sa.Column("slot", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("holder", sa.Text()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("slot", name="pk_lease"),
    )
    op.create_table(
        "worker",
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("holder", name="pk_worker"),
    )


def downgrade() -> None:
    """Drop them: whoever comes next owns every run."""
    op.drop_table("worker")
    op.drop_table("lease")

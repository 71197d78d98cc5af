"""The quotas of projects.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "quota",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("max_runs", sa.BigInteger()),
        sa.Column("max_bytes", sa.BigInteger()),
        sa.Column("reports_per_second", sa.Double()),
        sa.PrimaryKeyConstraint("project"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("quota")

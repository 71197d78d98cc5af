"""Which versions of trmon work over the schema.

Revision ID: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

oldest_reader = "0016"


def upgrade() -> None:
    """Create its table; trmon.store.migrations fills it after each upgrade."""
    op.create_table(
        "schema_compatibility",
        sa.Column("oldest_reader", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("oldest_reader"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("schema_compatibility")

"""A run names how it ended and what its trainer gets wrong; a batch, whether its completeness is known.

Revision ID: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ADDED = (
    ("run", "ending", sa.Text),
    ("run", "warnings", sa.Text),
    ("batch", "unconfirmed", sa.Boolean),
    ("claim", "scalars_at", sa.Double),
)


def upgrade() -> None:
    """Add the columns; of runs and batches that are there already, they say nothing."""
    for table, column, kind in ADDED:
        op.add_column(table, sa.Column(column, kind()))


def downgrade() -> None:
    """Drop them."""
    for table, column, _ in ADDED:
        op.drop_column(table, column)

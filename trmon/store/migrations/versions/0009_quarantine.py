"""A batch names what of it could not be processed.

Revision ID: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of batches that are closed already, nothing was set aside."""
    op.add_column("batch", sa.Column("quarantined", sa.Text()))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("batch", "quarantined")

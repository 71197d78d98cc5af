"""What a run's worker says of it is kept beside its state, for processes that have no worker.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a run has an outlook after its next pass."""
    op.add_column("run_state", sa.Column("outlook", sa.Text()))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("run_state", "outlook")

"""A claim knows when its launch began to speak and when its heart beat last: two trainers that live are told apart.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_COLUMNS = ("began_at", "beat_at")


def upgrade() -> None:
    """Add the columns; launches that speak already are known from their next claim on."""
    for name in _COLUMNS:
        op.add_column("claim", sa.Column(name, sa.Double()))


def downgrade() -> None:
    """Drop them."""
    for name in reversed(_COLUMNS):
        op.drop_column("claim", name)

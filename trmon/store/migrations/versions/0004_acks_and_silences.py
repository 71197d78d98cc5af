"""Who has acknowledged an alert, and silences.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_DELIVERY = sa.table("delivery", sa.column("state"))


def upgrade() -> None:
    """Add the columns and the table; alerts that are there are acknowledged by nobody."""
    for column in (
        sa.Column("acked_by", sa.Text()),
        sa.Column("acked_at", sa.Double()),
        sa.Column("ack_note", sa.Text()),
    ):
        op.add_column("alert", column)
    op.create_table(
        "silence",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project", sa.Text()),
        sa.Column("matchers", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.Double(), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_silence_ends_at", "silence", ["ends_at"])


def downgrade() -> None:
    """Drop them; what was held is due again, since nothing holds it any more."""
    op.execute(sa.update(_DELIVERY).where(_DELIVERY.c.state == "held").values(state="due"))
    op.drop_table("silence")
    for name in ("ack_note", "acked_at", "acked_by"):
        op.drop_column("alert", name)

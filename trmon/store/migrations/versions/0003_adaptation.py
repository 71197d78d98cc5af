"""Runs have a setting of how their bounds are adapted, and policy versions the evidence they rest on.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table and the column; versions from before rest on nothing."""
    op.create_table(
        "adaptation",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("setting", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_adaptation"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_adaptation_run_id", ondelete="CASCADE"),
    )
    with op.batch_alter_table("policy_version") as table:
        table.add_column(sa.Column("evidence", sa.Text(), nullable=False, server_default="{}"))
    with op.batch_alter_table("policy_version") as table:
        table.alter_column("evidence", server_default=None)


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("policy_version") as table:
        table.drop_column("evidence")
    op.drop_table("adaptation")

"""What has moved to the lake.

Revision ID: 0017
"""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

oldest_reader = "0016"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of lake batches and deletions, and give the database an identity."""
    op.add_column("attempt", sa.Column("lake_batch_id", sa.BigInteger()))
    identity = op.create_table("database_identity", sa.Column("id", sa.Text(), primary_key=True))
    op.bulk_insert(identity, [{"id": str(uuid4())}])
    op.create_table(
        "lake_batch",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("planned_at", sa.Double(), nullable=False),
        sa.Column("moved_at", sa.Double()),
        sa.Column("n_attempts", sa.Integer(), nullable=False),
        sa.Column("n_reports", sa.BigInteger(), nullable=False),
        sa.Column("n_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "lake_batch_attempt",
        sa.Column("lake_batch_id", sa.BigInteger(), sa.ForeignKey("lake_batch.id"), nullable=False),
        sa.Column("attempt_id", _ID, sa.ForeignKey("attempt.id", ondelete="CASCADE"), nullable=False),
        sa.Column("run_id", _ID, sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("is_late", sa.Boolean(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("after_report_id", "report_id", "after_notice_id", "notice_id")
        ),
        sa.PrimaryKeyConstraint("lake_batch_id", "attempt_id"),
    )
    for column in ("attempt_id", "run_id"):
        op.create_index(f"ix_lake_batch_attempt_{column}", "lake_batch_attempt", [column])
    op.create_table(
        "lake_deletion",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double()),
        sa.PrimaryKeyConstraint("run_id"),
    )


def downgrade() -> None:
    """Drop them; what was moved is then only in the lake."""
    for table in ("lake_deletion", "lake_batch_attempt", "lake_batch", "database_identity"):
        op.drop_table(table)
    op.drop_column("attempt", "lake_batch_id")

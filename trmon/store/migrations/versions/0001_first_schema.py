"""The first schema.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = (
    "project",
    "run",
    "run_tag",
    "attempt",
    "claim",
    "report",
    "notice",
    "name_set",
    "batch",
    "decision",
    "chunk_axes",
    "signal_chunk",
    "policy_version",
    "run_state",
    "alert",
    "alert_event",
    "delivery",
    "event",
    "token",
)


def upgrade() -> None:
    """Make every table."""
    _runs()
    _attempts()
    _claims()
    _reports()
    _notices()
    _batches()
    _decisions()
    _history()
    _policies()
    _alerts()
    _alert_events()
    _outbox()
    _events()
    _tokens()


def downgrade() -> None:
    """Drop every table."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _runs() -> None:
    op.create_table(
        "project",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "run",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_step", sa.BigInteger()),
        sa.Column("attempt_id", sa.BigInteger()),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["project.name"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "run_tag",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "tag"),
    )
    op.create_index("ix_run_tag_tag", "run_tag", ["tag"])


def _attempts() -> None:
    op.create_table(
        "attempt",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("world_size", sa.BigInteger(), nullable=False),
        sa.Column("fork_of", sa.BigInteger()),
        sa.Column("fork_reason", sa.Text()),
        sa.Column("launch", sa.Text()),
        sa.Column("ranks_unverified", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "name"),
        sqlite_autoincrement=True,
    )


def _claims() -> None:
    op.create_table(
        "claim",
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("launch", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("reported_at", sa.Double()),
        sa.Column("last_step", sa.BigInteger()),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("former_launch", sa.Text()),
        sa.Column("former_step", sa.BigInteger()),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "rank"),
    )
    op.create_index("ix_claim_run_id", "claim", ["run_id"])


def _reports() -> None:
    op.create_table(
        "report",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("update_index", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("chunk", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("n_sequences", sa.Integer(), nullable=False),
        sa.Column("n_tokens", sa.BigInteger(), nullable=False),
        sa.Column("payload_bytes", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("accepted", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "step", "update_index", "rank", "chunk"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_report_run_id", "report", ["run_id", "id", "received_at", "payload_bytes"])


def _notices() -> None:
    op.create_table(
        "notice",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("launch", sa.Text(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "launch", "rank", "sequence", "kind"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notice_run_id", "notice", ["run_id", "id"])


def _batches() -> None:
    op.create_table(
        "name_set",
        sa.Column("id", _ID, nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("names"),
    )
    op.create_table(
        "batch",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("update_index", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=False),
        sa.Column("n_sequences", sa.Integer(), nullable=False),
        sa.Column("n_tokens", sa.BigInteger(), nullable=False),
        sa.Column("n_ranks", sa.Integer(), nullable=False),
        sa.Column("missing_ranks", sa.Text(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("revised", sa.Boolean(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("primary_pair", sa.Text(), nullable=False),
        sa.Column("kl_is", sa.Text(), nullable=False),
        sa.Column("policy_hash", sa.Text()),
        sa.Column("mismatches", sa.Integer(), nullable=False),
        sa.Column("last_report_id", sa.BigInteger(), nullable=False),
        sa.Column("signal_names", _ID, nullable=False),
        sa.Column("signals", sa.LargeBinary(), nullable=False),
        sa.Column("scalar_names", _ID, nullable=False),
        sa.Column("scalars", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["scalar_names"], ["name_set.id"]),
        sa.ForeignKeyConstraint(["signal_names"], ["name_set.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "step", "update_index"),
        sa.UniqueConstraint("run_id", "ordinal"),
    )
    op.create_index("ix_batch_attempt_id", "batch", ["attempt_id", "ordinal"])


def _decisions() -> None:
    op.create_table(
        "decision",
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("update_index", sa.BigInteger(), nullable=False),
        sa.Column("policy_hash", sa.Text(), nullable=False),
        sa.Column("policy_name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("mask_rate", sa.Double()),
        sa.Column("accepted", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "step", "update_index", "policy_hash"),
    )


def _history() -> None:
    op.create_table(
        "chunk_axes",
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("first_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("last_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("axes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "first_ordinal"),
    )
    op.create_table(
        "signal_chunk",
        sa.Column("attempt_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "name", "first_ordinal"),
    )


def _policies() -> None:
    op.create_table(
        "policy_version",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("shadows", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("from_step", sa.BigInteger(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_policy_version_run_id", "policy_version", ["run_id", "id"])
    op.create_table(
        "run_state",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("report_id", sa.BigInteger(), nullable=False),
        sa.Column("notice_id", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.BigInteger()),
        sa.Column("version", sa.Integer()),
        sa.Column("state", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id"),
    )


def _alerts() -> None:
    op.create_table(
        "alert",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("update_index", sa.BigInteger(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("threshold", sa.Double()),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("runbook", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("identity", "attempt_id", "step", "update_index"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alert_run_id", "alert", ["run_id", "id"])


def _alert_events() -> None:
    op.create_table(
        "alert_event",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("update_index", sa.BigInteger(), nullable=False),
        sa.Column("silence_started_at", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("threshold", sa.Double()),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("identity", "attempt_id", "step", "update_index", "silence_started_at", "state"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alert_event_run_id", "alert_event", ["run_id"])


def _outbox() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", _ID, nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("last_error", sa.Text()),
        sa.Column("tried_at", sa.Double()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dedup_key"),
    )
    op.create_index("ix_delivery_due", "delivery", ["state", "due_at"])


def _events() -> None:
    op.create_table(
        "event",
        sa.Column("id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_run_id", "event", ["run_id"])


def _tokens() -> None:
    op.create_table(
        "token",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
        sa.UniqueConstraint("name"),
    )

"""The schema of 0.2.0.

Revision ID: 0001
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

oldest_reader = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_COMPRESSED = (("report", "payload"), ("chunk_axes", "axes"), ("signal_chunk", "data"))


def upgrade() -> None:
    """Create every table, and give the database the identity under which a lake holds its rows."""
    for create in (
        _runs,
        _messages,
        _batches,
        _signals,
        _policies,
        _states,
        _alerts,
        _notifications,
        _database,
        _lake,
        _projects,
    ):
        create()
    identity = op.create_table("database_identity", *_columns(sa.Text(), "id", primary_key=True))
    op.bulk_insert(identity, [{"id": str(uuid4())}])
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _COMPRESSED:
            # PostgreSQL would try to compress them again.
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def _id() -> sa.Column[Any]:
    return sa.Column("id", _ID, primary_key=True)


def _columns(
    kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False, primary_key: bool = False
) -> Iterator[sa.Column[Any]]:
    for name in names:
        yield sa.Column(name, kind, nullable=nullable, primary_key=primary_key, autoincrement=False)


def _reference(name: str, target: str, *, nullable: bool = False, primary_key: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _ID, sa.ForeignKey(target, ondelete="CASCADE"), nullable=nullable, primary_key=primary_key)


def _unique_token_name(index: str, *columns: str, scope: str) -> sa.Index:
    where = sa.text(f"replaced_at IS NULL AND revoked_at IS NULL AND project IS {scope}")
    return sa.Index(index, *columns, unique=True, sqlite_where=where, postgresql_where=where)


def _runs() -> None:
    op.create_table(
        "project",
        *_columns(sa.Text(), "name", primary_key=True),
        *_columns(sa.Double(), "created_at"),
    )
    op.create_table(
        "run",
        _id(),
        sa.Column("project", sa.Text(), sa.ForeignKey("project.name"), nullable=False),
        *_columns(sa.Text(), "name", "state"),
        *_columns(sa.Text(), "owner", nullable=True),
        *_columns(sa.Text(), "config", "mode"),
        *_columns(sa.Double(), "created_at"),
        *_columns(sa.BigInteger(), "last_step", "attempt_id", nullable=True),
        *_columns(sa.Boolean(), "archived"),
        *_columns(sa.Text(), "ending", "warnings", nullable=True),
        sa.UniqueConstraint("project", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "run_tag",
        _reference("run_id", "run.id", primary_key=True),
        *_columns(sa.Text(), "tag", primary_key=True),
        sa.Index("ix_run_tag_tag", "tag"),
    )
    op.create_table(
        "attempt",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.Text(), "name"),
        *_columns(sa.Integer(), "ordinal"),
        *_columns(sa.Double(), "started_at"),
        *_columns(sa.BigInteger(), "world_size"),
        *_columns(sa.BigInteger(), "fork_of", nullable=True),
        *_columns(sa.Text(), "fork_reason", "launch", nullable=True),
        *_columns(sa.Boolean(), "ranks_unverified"),
        *_columns(sa.BigInteger(), "lake_batch_id", nullable=True),
        sa.UniqueConstraint("run_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "claim",
        _reference("attempt_id", "attempt.id", primary_key=True),
        *_columns(sa.BigInteger(), "rank", primary_key=True),
        _reference("run_id", "run.id"),
        *_columns(sa.Text(), "launch"),
        *_columns(sa.Double(), "seen_at"),
        *_columns(sa.Double(), "reported_at", nullable=True),
        *_columns(sa.BigInteger(), "last_step", nullable=True),
        *_columns(sa.Boolean(), "ended"),
        *_columns(sa.Double(), "began_at", "beat_at", nullable=True),
        *_columns(sa.Text(), "former_launch", nullable=True),
        *_columns(sa.BigInteger(), "former_step", nullable=True),
        *_columns(sa.Double(), "scalars_at", nullable=True),
        sa.Index("ix_claim_run_id", "run_id"),
    )


def _messages() -> None:
    op.create_table(
        "report",
        _id(),
        _reference("run_id", "run.id"),
        _reference("attempt_id", "attempt.id"),
        *_columns(sa.BigInteger(), "step", "update_index", "rank", "chunk"),
        *_columns(sa.Double(), "received_at"),
        *_columns(sa.Integer(), "n_sequences"),
        *_columns(sa.BigInteger(), "n_tokens"),
        *_columns(sa.Integer(), "payload_bytes"),
        *_columns(sa.LargeBinary(), "digest", "accepted", "payload"),
        sa.UniqueConstraint("attempt_id", "step", "update_index", "rank", "chunk"),
        sa.Index("ix_report_run_id", "run_id", "id", "received_at", "payload_bytes"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "notice",
        _id(),
        _reference("run_id", "run.id"),
        _reference("attempt_id", "attempt.id"),
        *_columns(sa.Text(), "kind", "launch"),
        *_columns(sa.BigInteger(), "rank", "sequence"),
        *_columns(sa.Double(), "received_at"),
        *_columns(sa.LargeBinary(), "digest", "payload"),
        sa.UniqueConstraint("attempt_id", "launch", "rank", "sequence", "kind"),
        sa.Index("ix_notice_run_id", "run_id", "id"),
        sqlite_autoincrement=True,
    )


def _batches() -> None:
    op.create_table(
        "name_set",
        _id(),
        *_columns(sa.Text(), "names"),
        sa.UniqueConstraint("names"),
    )
    op.create_table(
        "batch",
        _id(),
        _reference("run_id", "run.id"),
        _reference("attempt_id", "attempt.id"),
        *_columns(sa.BigInteger(), "step", "update_index", "ordinal"),
        *_columns(sa.Double(), "closed_at"),
        *_columns(sa.Integer(), "n_sequences"),
        *_columns(sa.BigInteger(), "n_tokens"),
        *_columns(sa.Integer(), "n_ranks"),
        *_columns(sa.Text(), "missing_ranks"),
        *_columns(sa.Boolean(), "complete", "revised"),
        *_columns(sa.Text(), "mode", "primary_pair", "kl_is"),
        *_columns(sa.Text(), "policy_hash", nullable=True),
        *_columns(sa.Integer(), "mismatches"),
        *_columns(sa.BigInteger(), "last_report_id"),
        sa.Column("signal_names", _ID, sa.ForeignKey("name_set.id"), nullable=False),
        *_columns(sa.LargeBinary(), "signals"),
        sa.Column("scalar_names", _ID, sa.ForeignKey("name_set.id"), nullable=False),
        *_columns(sa.LargeBinary(), "scalars"),
        *_columns(sa.Text(), "quarantined", nullable=True),
        *_columns(sa.Boolean(), "unconfirmed", nullable=True),
        sa.UniqueConstraint("run_id", "ordinal"),
        sa.UniqueConstraint("attempt_id", "step", "update_index"),
        sa.Index("ix_batch_attempt_id", "attempt_id", "ordinal"),
    )
    op.create_table(
        "decision",
        _reference("attempt_id", "attempt.id", primary_key=True),
        *_columns(sa.BigInteger(), "step", "update_index", primary_key=True),
        *_columns(sa.Text(), "policy_hash", primary_key=True),
        *_columns(sa.Text(), "policy_name", "role", "counts"),
        *_columns(sa.Double(), "mask_rate", nullable=True),
        *_columns(sa.LargeBinary(), "accepted"),
    )


def _signals() -> None:
    op.create_table(
        "chunk_axes",
        _reference("attempt_id", "attempt.id", primary_key=True),
        *_columns(sa.BigInteger(), "first_ordinal", primary_key=True),
        *_columns(sa.BigInteger(), "last_ordinal", "first_step", "last_step"),
        *_columns(sa.LargeBinary(), "axes"),
    )
    op.create_table(
        "signal_chunk",
        _reference("attempt_id", "attempt.id", primary_key=True),
        *_columns(sa.Text(), "name", primary_key=True),
        *_columns(sa.BigInteger(), "first_ordinal", primary_key=True),
        *_columns(sa.LargeBinary(), "data"),
    )


def _policies() -> None:
    op.create_table(
        "policy_version",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.Text(), "hash", "policy", "shadows", "author", "reason"),
        *_columns(sa.Double(), "created_at"),
        *_columns(sa.BigInteger(), "from_step"),
        *_columns(sa.Boolean(), "pinned"),
        *_columns(sa.Text(), "evidence"),
        sa.Index("ix_policy_version_run_id", "run_id", "id"),
    )
    op.create_table(
        "adaptation",
        _reference("run_id", "run.id", primary_key=True),
        *_columns(sa.Text(), "setting", "author"),
        *_columns(sa.Double(), "changed_at"),
    )


def _states() -> None:
    op.create_table(
        "run_state",
        _reference("run_id", "run.id", primary_key=True),
        *_columns(sa.BigInteger(), "report_id", "notice_id"),
        *_columns(sa.BigInteger(), "ordinal", nullable=True),
        *_columns(sa.Integer(), "version", nullable=True),
        *_columns(sa.LargeBinary(), "state", nullable=True),
        *_columns(sa.Text(), "outlook", nullable=True),
    )
    op.create_table(
        "run_summary",
        _reference("run_id", "run.id", primary_key=True),
        *_columns(sa.BigInteger(), "attempt_id", "step", "report_id", "notice_id"),
        *_columns(sa.Integer(), "version"),
        *_columns(sa.Double(), "made_at"),
        *_columns(sa.LargeBinary(), "document"),
    )
    op.create_table(
        "lease",
        *_columns(sa.Integer(), "slot", primary_key=True),
        *_columns(sa.Text(), "holder", nullable=True),
        *_columns(sa.BigInteger(), "fence"),
        *_columns(sa.Double(), "expires_at"),
    )
    op.create_table(
        "worker",
        *_columns(sa.Text(), "holder", primary_key=True),
        *_columns(sa.Double(), "seen_at"),
    )


def _alerts() -> None:
    op.create_table(
        "alert",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.Text(), "identity"),
        *_columns(sa.BigInteger(), "attempt_id", "step", "update_index"),
        *_columns(sa.Text(), "rule", "severity", "state"),
        *_columns(sa.Double(), "since_at", "updated_at"),
        *_columns(sa.Double(), "value", "threshold", nullable=True),
        *_columns(sa.Text(), "summary", "labels", "runbook"),
        *_columns(sa.Text(), "acked_by", nullable=True),
        *_columns(sa.Double(), "acked_at", nullable=True),
        *_columns(sa.Text(), "ack_note", nullable=True),
        sa.UniqueConstraint("identity", "attempt_id", "step", "update_index"),
        sa.Index("ix_alert_run_id", "run_id", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "alert_event",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.Text(), "identity"),
        *_columns(sa.BigInteger(), "attempt_id", "step", "update_index"),
        *_columns(sa.Double(), "silence_started_at"),
        *_columns(sa.Text(), "state"),
        *_columns(sa.Double(), "at"),
        *_columns(sa.Double(), "value", "threshold", nullable=True),
        *_columns(sa.Text(), "summary"),
        sa.UniqueConstraint("identity", "attempt_id", "step", "update_index", "silence_started_at", "state"),
        sa.Index("ix_alert_event_run_id", "run_id"),
        sqlite_autoincrement=True,
    )


def _notifications() -> None:
    op.create_table(
        "delivery",
        _id(),
        *_columns(sa.Text(), "receiver", "dedup_key", "body", "state"),
        *_columns(sa.Integer(), "attempts"),
        *_columns(sa.Double(), "due_at"),
        *_columns(sa.Text(), "last_error", nullable=True),
        *_columns(sa.Double(), "tried_at", nullable=True),
        *_columns(sa.Double(), "made_at"),
        _reference("run_id", "run.id", nullable=True),
        *_columns(sa.Text(), "episode", nullable=True),
        *_columns(sa.Text(), "told_state"),
        *_columns(sa.Integer(), "rounds"),
        *_columns(sa.Text(), "muted", nullable=True),
        sa.UniqueConstraint("dedup_key"),
        sa.Index("ix_delivery_due", "state", "due_at"),
        sa.Index("ix_delivery_run_id", "run_id", "id"),
    )
    op.create_table(
        "silence",
        _id(),
        *_columns(sa.Text(), "project", nullable=True),
        *_columns(sa.Text(), "matchers", "author", "note"),
        *_columns(sa.Double(), "starts_at", "ends_at"),
        sa.Index("ix_silence_ends_at", "ends_at"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "event",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.Double(), "at"),
        *_columns(sa.Text(), "kind", "data"),
        sa.Index("ix_event_run_id", "run_id"),
        sqlite_autoincrement=True,
    )


def _database() -> None:
    op.create_table(
        "schema_compatibility",
        *_columns(sa.Text(), "oldest_reader", primary_key=True),
    )


def _lake() -> None:
    op.create_table(
        "lake_batch",
        *_columns(sa.BigInteger(), "id", primary_key=True),
        *_columns(sa.Double(), "planned_at"),
        *_columns(sa.Double(), "moved_at", nullable=True),
        *_columns(sa.Integer(), "n_attempts"),
        *_columns(sa.BigInteger(), "n_reports", "n_bytes"),
    )
    op.create_table(
        "lake_batch_attempt",
        sa.Column("lake_batch_id", sa.BigInteger(), sa.ForeignKey("lake_batch.id"), primary_key=True),
        _reference("attempt_id", "attempt.id", primary_key=True),
        _reference("run_id", "run.id"),
        *_columns(sa.Boolean(), "is_late"),
        *_columns(sa.BigInteger(), "after_report_id", "report_id", "after_notice_id", "notice_id"),
        sa.Index("ix_lake_batch_attempt_attempt_id", "attempt_id"),
        sa.Index("ix_lake_batch_attempt_run_id", "run_id"),
    )
    op.create_table(
        "lake_deletion",
        *_columns(sa.BigInteger(), "run_id", primary_key=True),
        *_columns(sa.Text(), "project"),
        *_columns(sa.Double(), "asked_at"),
        *_columns(sa.Double(), "deleted_at", nullable=True),
    )


def _projects() -> None:
    op.create_table(
        "token",
        _id(),
        *_columns(sa.Text(), "name", "digest", "scopes"),
        *_columns(sa.Text(), "project", nullable=True),
        *_columns(sa.Double(), "created_at"),
        *_columns(sa.Double(), "expires_at", "last_used_at", "replaced_at", "revoked_at", nullable=True),
        sa.UniqueConstraint("digest"),
        _unique_token_name("ix_token_name", "name", scope="NULL"),
        _unique_token_name("ix_token_project_name", "project", "name", scope="NOT NULL"),
    )
    op.create_table(
        "quota",
        *_columns(sa.Text(), "project", primary_key=True),
        *_columns(sa.BigInteger(), "max_runs", "max_bytes", nullable=True),
        *_columns(sa.Double(), "reports_per_second", nullable=True),
    )
    op.create_table(
        "audit",
        _id(),
        *_columns(sa.Double(), "at"),
        *_columns(sa.Text(), "actor"),
        *_columns(sa.BigInteger(), "token_id", nullable=True),
        *_columns(sa.Text(), "action"),
        *_columns(sa.Text(), "project", nullable=True),
        *_columns(sa.Text(), "target"),
        *_columns(sa.Text(), "before", "after", nullable=True),
        sa.Index("ix_audit_at", "at"),
        sa.Index("ix_audit_project", "project", "id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "note",
        _id(),
        _reference("run_id", "run.id"),
        *_columns(sa.BigInteger(), "step", nullable=True),
        *_columns(sa.Text(), "author", "text"),
        *_columns(sa.Double(), "at"),
        sa.Index("ix_note_run_id", "run_id", "id"),
        sqlite_autoincrement=True,
    )

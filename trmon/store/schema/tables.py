"""All tables; trmon/store/migrations creates them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from trmon.store.schema.column_types import (
    Id,
    JsonColumn,
    NumberColumn,
    SilenceStartColumn,
    TrainerDocumentColumn,
    UpdateIndexColumn,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)
"""Constraints have names, because a migration can only change named ones."""

BATCH_KEY = ("attempt_id", "step", "update_index")
REPORT_KEY = (*BATCH_KEY, "rank", "chunk")
NOTICE_KEY = ("attempt_id", "launch", "rank", "sequence", "kind")
ALERT_KEY = ("identity", *BATCH_KEY)
EVENT_KEY = ("identity", *BATCH_KEY, "silence_started_at", "state")


def _table(name: str, *columns: Any, **options: Any) -> Table:
    return Table(name, metadata, *columns, **options)


def _id() -> Column[Any]:
    return Column("id", Id, primary_key=True, autoincrement=True)


def _run() -> Column[Any]:
    return Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), nullable=False)


def _attempt(*, primary_key: bool = False) -> Column[Any]:
    return Column("attempt_id", ForeignKey("attempt.id", ondelete="CASCADE"), nullable=False, primary_key=primary_key)


def _required(name: str, kind: Any, **options: Any) -> Column[Any]:
    return Column(name, kind, nullable=False, **options)


def _columns(kind: Any, *names: str, nullable: bool = False) -> Iterator[Column[Any]]:
    for name in names:
        yield Column(name, kind, nullable=nullable)


def _unique(*columns: str) -> UniqueConstraint:
    return UniqueConstraint(*columns)


# sqlite_autoincrement prevents the reuse of ids after the newest rows are pruned: frontiers and the event stream
# compare ids.

project = _table("project", Column("name", Text, primary_key=True), _required("created_at", Double))

run = _table(
    "run",
    _id(),
    _required("project", ForeignKey("project.name")),
    *_columns(Text, "name", "state"),
    Column("owner", Text),
    _required("config", TrainerDocumentColumn),
    _required("mode", Text),
    _required("created_at", Double),
    *_columns(BigInteger, "last_step", "attempt_id", nullable=True),
    _required("archived", Boolean),
    *_columns(TrainerDocumentColumn, "ending", "warnings", nullable=True),
    _unique("project", "name"),
    sqlite_autoincrement=True,
)

run_tag = _table(
    "run_tag",
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index("ix_run_tag_tag", "tag"),
)

attempt = _table(
    "attempt",
    _id(),
    _run(),
    _required("name", Text),
    _required("ordinal", Integer),
    _required("started_at", Double),
    _required("world_size", BigInteger),
    Column("fork_of", BigInteger),
    *_columns(Text, "fork_reason", "launch", nullable=True),
    _required("ranks_unverified", Boolean),
    Column("lake_batch_id", BigInteger),
    _unique("run_id", "name"),
    sqlite_autoincrement=True,
)

claim = _table(
    "claim",
    _attempt(primary_key=True),
    Column("rank", BigInteger, primary_key=True),
    _run(),
    _required("launch", Text),
    _required("seen_at", Double),
    Column("reported_at", Double),
    Column("last_step", BigInteger),
    _required("ended", Boolean),
    *_columns(Double, "began_at", "beat_at", nullable=True),
    Column("former_launch", Text),
    Column("former_step", BigInteger),
    Column("scalars_at", Double),
    Index("ix_claim_run_id", "run_id"),
)

report = _table(
    "report",
    _id(),
    _run(),
    _attempt(),
    _required("step", BigInteger),
    _required("update_index", UpdateIndexColumn),
    *_columns(BigInteger, "rank", "chunk"),
    _required("received_at", Double),
    _required("n_sequences", Integer),
    _required("n_tokens", BigInteger),
    _required("payload_bytes", Integer),
    *_columns(LargeBinary, "digest", "accepted", "payload"),
    _unique(*REPORT_KEY),
    # A covering index: retention reads ages and sizes without the table.
    Index("ix_report_run_id", "run_id", "id", "received_at", "payload_bytes"),
    sqlite_autoincrement=True,
)

notice = _table(
    "notice",
    _id(),
    _run(),
    _attempt(),
    *_columns(Text, "kind", "launch"),
    *_columns(BigInteger, "rank", "sequence"),
    _required("received_at", Double),
    *_columns(LargeBinary, "digest", "payload"),
    _unique(*NOTICE_KEY),
    Index("ix_notice_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

# The names of a batch's signals, in the order of its values. Nearly all batches share one row, so a new signal needs
# no migration and takes eight bytes per batch.
name_set = _table("name_set", _id(), _required("names", Text, unique=True))

batch = _table(
    "batch",
    _id(),
    _run(),
    _attempt(),
    _required("step", BigInteger),
    _required("update_index", UpdateIndexColumn),
    _required("ordinal", BigInteger),
    _required("closed_at", Double),
    _required("n_sequences", Integer),
    _required("n_tokens", BigInteger),
    _required("n_ranks", Integer),
    _required("missing_ranks", JsonColumn),
    *_columns(Boolean, "complete", "revised"),
    *_columns(Text, "mode", "primary_pair", "kl_is"),
    Column("policy_hash", Text),
    _required("mismatches", Integer),
    _required("last_report_id", BigInteger),
    _required("signal_names", ForeignKey("name_set.id")),
    _required("signals", LargeBinary),
    _required("scalar_names", ForeignKey("name_set.id")),
    _required("scalars", LargeBinary),
    Column("quarantined", JsonColumn),
    Column("unconfirmed", Boolean),
    _unique(*BATCH_KEY),
    _unique("run_id", "ordinal"),
    Index("ix_batch_attempt_id", "attempt_id", "ordinal"),
)

decision = _table(
    "decision",
    _attempt(primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("update_index", UpdateIndexColumn, primary_key=True),
    Column("policy_hash", Text, primary_key=True),
    *_columns(Text, "policy_name", "role"),
    _required("counts", JsonColumn),
    Column("mask_rate", NumberColumn),
    _required("accepted", LargeBinary),
)

chunk_axes = _table(
    "chunk_axes",
    _attempt(primary_key=True),
    Column("first_ordinal", BigInteger, primary_key=True),
    *_columns(BigInteger, "last_ordinal", "first_step", "last_step"),
    _required("axes", LargeBinary),
)

signal_chunk = _table(
    "signal_chunk",
    _attempt(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("first_ordinal", BigInteger, primary_key=True),
    _required("data", LargeBinary),
)

policy_version = _table(
    "policy_version",
    _id(),
    _run(),
    _required("hash", Text),
    *_columns(JsonColumn, "policy", "shadows"),
    *_columns(Text, "author", "reason"),
    _required("created_at", Double),
    _required("from_step", BigInteger),
    _required("pinned", Boolean),
    _required("evidence", JsonColumn),
    Index("ix_policy_version_run_id", "run_id", "id"),
)

adaptation = _table(
    "adaptation",
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    _required("setting", JsonColumn),
    _required("author", Text),
    _required("changed_at", Double),
)

run_state = _table(
    "run_state",
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    *_columns(BigInteger, "report_id", "notice_id"),
    Column("ordinal", BigInteger),
    Column("version", Integer),
    Column("state", LargeBinary),
    Column("outlook", JsonColumn),
)

# No longer written: 0.2.0 did, and a later migration drops it.
run_summary = _table(
    "run_summary",
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    *_columns(BigInteger, "attempt_id", "step", "report_id", "notice_id"),
    _required("version", Integer),
    _required("made_at", Double),
    _required("document", LargeBinary),
)

alert = _table(
    "alert",
    _id(),
    _run(),
    _required("identity", Text),
    *_columns(BigInteger, "attempt_id", "step"),
    _required("update_index", UpdateIndexColumn),
    *_columns(Text, "rule", "severity", "state"),
    *_columns(Double, "since_at", "updated_at"),
    *_columns(NumberColumn, "value", "threshold", nullable=True),
    _required("summary", Text),
    _required("labels", JsonColumn),
    _required("runbook", Text),
    Column("acked_by", Text),
    Column("acked_at", Double),
    Column("ack_note", Text),
    _unique(*ALERT_KEY),
    Index("ix_alert_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

alert_event = _table(
    "alert_event",
    _id(),
    _run(),
    _required("identity", Text),
    *_columns(BigInteger, "attempt_id", "step"),
    _required("update_index", UpdateIndexColumn),
    _required("silence_started_at", SilenceStartColumn),
    _required("state", Text),
    _required("at", Double),
    *_columns(NumberColumn, "value", "threshold", nullable=True),
    _required("summary", Text),
    _unique(*EVENT_KEY),
    Index("ix_alert_event_run_id", "run_id"),
    sqlite_autoincrement=True,
)

delivery = _table(
    "delivery",
    _id(),
    _required("receiver", Text),
    _required("dedup_key", Text, unique=True),
    _required("body", JsonColumn),
    _required("state", Text),
    _required("attempts", Integer),
    _required("due_at", Double),
    Column("last_error", Text),
    Column("tried_at", Double),
    _required("made_at", Double),
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE")),
    Column("episode", Text),
    _required("told_state", Text),
    _required("rounds", Integer),
    Column("muted", Text),
    Index("ix_delivery_due", "state", "due_at"),
    Index("ix_delivery_run_id", "run_id", "id"),
)

silence = _table(
    "silence",
    _id(),
    Column("project", Text),
    _required("matchers", JsonColumn),
    *_columns(Text, "author", "note"),
    *_columns(Double, "starts_at", "ends_at"),
    Index("ix_silence_ends_at", "ends_at"),
    sqlite_autoincrement=True,
)

note = _table(
    "note",
    _id(),
    _run(),
    Column("step", BigInteger),
    *_columns(Text, "author", "text"),
    _required("at", Double),
    Index("ix_note_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

event = _table(
    "event",
    _id(),
    _run(),
    _required("at", Double),
    _required("kind", Text),
    _required("data", JsonColumn),
    Index("ix_event_run_id", "run_id"),
    sqlite_autoincrement=True,
)

lease = _table(
    "lease",
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text),
    _required("fence", BigInteger),
    _required("expires_at", Double),
)

worker = _table("worker", Column("holder", Text, primary_key=True), _required("seen_at", Double))

schema_compatibility = _table("schema_compatibility", Column("oldest_reader", Text, primary_key=True))
"""One row: the schema revision that a trmon must know to work over this database."""

# A lake holds the tables of several databases, each under the identity that its database got when it was made.
database_identity = _table("database_identity", Column("id", Text, primary_key=True))

lake_batch = _table(
    "lake_batch",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    _required("planned_at", Double),
    Column("moved_at", Double),
    _required("n_attempts", Integer),
    *_columns(BigInteger, "n_reports", "n_bytes"),
)

# The range of an attempt that a lake batch moves: the reports and notices after and up to these ids, and all other
# rows unless only late messages are left.
lake_batch_attempt = _table(
    "lake_batch_attempt",
    Column("lake_batch_id", ForeignKey("lake_batch.id"), primary_key=True),
    _attempt(primary_key=True),
    _run(),
    _required("is_late", Boolean),
    *_columns(BigInteger, "after_report_id", "report_id", "after_notice_id", "notice_id"),
    Index("ix_lake_batch_attempt_attempt_id", "attempt_id"),
    Index("ix_lake_batch_attempt_run_id", "run_id"),
)

# Runs whose rows in the lake are to be deleted; the run itself is gone.
lake_deletion = _table(
    "lake_deletion",
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    _required("project", Text),
    _required("asked_at", Double),
    Column("deleted_at", Double),
)

quota = _table(
    "quota",
    Column("project", Text, primary_key=True),
    *_columns(BigInteger, "max_runs", "max_bytes", nullable=True),
    Column("reports_per_second", Double),
)

audit = _table(
    "audit",
    _id(),
    _required("at", Double),
    _required("actor", Text),
    Column("token_id", BigInteger),
    _required("action", Text),
    Column("project", Text),
    _required("target", Text),
    *_columns(JsonColumn, "before", "after", nullable=True),
    Index("ix_audit_project", "project", "id"),
    Index("ix_audit_at", "at"),
    sqlite_autoincrement=True,
)

# Revoked tokens keep their rows: the service stays closed once a token was created.
_OF_ALL_PROJECTS = text("replaced_at IS NULL AND revoked_at IS NULL AND project IS NULL")
_OF_A_PROJECT = text("replaced_at IS NULL AND revoked_at IS NULL AND project IS NOT NULL")

token = _table(
    "token",
    _id(),
    _required("name", Text),
    _required("digest", Text, unique=True),
    _required("scopes", JsonColumn),
    Column("project", Text),
    _required("created_at", Double),
    *_columns(Double, "expires_at", "last_used_at", "replaced_at", "revoked_at", nullable=True),
    Index("ix_token_name", "name", unique=True, sqlite_where=_OF_ALL_PROJECTS, postgresql_where=_OF_ALL_PROJECTS),
    Index(
        *("ix_token_project_name", "project", "name"),
        unique=True,
        sqlite_where=_OF_A_PROJECT,
        postgresql_where=_OF_A_PROJECT,
    ),
)

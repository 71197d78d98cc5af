"""The tables, on one page; trmon/store/migrations makes them."""

from __future__ import annotations

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
)

from trmon.store.schema.column_types import Id, JsonColumn, NumberColumn, SilenceStartColumn, UpdateIndexColumn

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)
"""Constraints are named, since a migration can only change what has a name."""

BATCH_KEY = ("attempt_id", "step", "update_index")
REPORT_KEY = (*BATCH_KEY, "rank", "chunk")
NOTICE_KEY = ("attempt_id", "launch", "rank", "sequence", "kind")
ALERT_KEY = ("identity", *BATCH_KEY)
EVENT_KEY = ("identity", *BATCH_KEY, "silence_started_at", "state")


def _id() -> Column[Any]:
    return Column("id", Id, primary_key=True, autoincrement=True)


def _run() -> Column[Any]:
    return Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), nullable=False)


def _attempt(*, primary_key: bool = False) -> Column[Any]:
    return Column("attempt_id", ForeignKey("attempt.id", ondelete="CASCADE"), nullable=False, primary_key=primary_key)


def _needed(name: str, kind: Any, **options: Any) -> Column[Any]:
    return Column(name, kind, nullable=False, **options)


def _unique(*columns: str) -> UniqueConstraint:
    return UniqueConstraint(*columns)


# A generated id is never used twice (sqlite_autoincrement), even after the newest rows are pruned: frontiers and
# event streams compare ids.

project = Table("project", metadata, Column("name", Text, primary_key=True), _needed("created_at", Double))

run = Table(
    "run",
    metadata,
    _id(),
    _needed("project", ForeignKey("project.name")),
    _needed("name", Text),
    _needed("state", Text),
    Column("owner", Text),
    _needed("config", JsonColumn),
    _needed("mode", Text),
    _needed("created_at", Double),
    Column("last_step", BigInteger),
    Column("attempt_id", BigInteger),
    _needed("archived", Boolean),
    _unique("project", "name"),
    sqlite_autoincrement=True,
)

run_tag = Table(
    "run_tag",
    metadata,
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", Text, primary_key=True),
    Index("ix_run_tag_tag", "tag"),
)

attempt = Table(
    "attempt",
    metadata,
    _id(),
    _run(),
    _needed("name", Text),
    _needed("ordinal", Integer),
    _needed("started_at", Double),
    _needed("world_size", BigInteger),
    Column("fork_of", BigInteger),
    Column("fork_reason", Text),
    Column("launch", Text),
    _needed("ranks_unverified", Boolean),
    _unique("run_id", "name"),
    sqlite_autoincrement=True,
)

claim = Table(
    "claim",
    metadata,
    _attempt(primary_key=True),
    Column("rank", BigInteger, primary_key=True),
    _run(),
    _needed("launch", Text),
    _needed("seen_at", Double),
    Column("reported_at", Double),
    Column("last_step", BigInteger),
    _needed("ended", Boolean),
    Column("began_at", Double),
    Column("beat_at", Double),
    Column("former_launch", Text),
    Column("former_step", BigInteger),
    Index("ix_claim_run_id", "run_id"),
)

report = Table(
    "report",
    metadata,
    _id(),
    _run(),
    _attempt(),
    _needed("step", BigInteger),
    _needed("update_index", UpdateIndexColumn),
    _needed("rank", BigInteger),
    _needed("chunk", BigInteger),
    _needed("received_at", Double),
    _needed("n_sequences", Integer),
    _needed("n_tokens", BigInteger),
    _needed("payload_bytes", Integer),
    _needed("digest", LargeBinary),
    _needed("accepted", LargeBinary),
    _needed("payload", LargeBinary),
    _unique(*REPORT_KEY),
    # Retention reads ages and bytes from the index alone.
    Index("ix_report_run_id", "run_id", "id", "received_at", "payload_bytes"),
    sqlite_autoincrement=True,
)

notice = Table(
    "notice",
    metadata,
    _id(),
    _run(),
    _attempt(),
    _needed("kind", Text),
    _needed("launch", Text),
    _needed("rank", BigInteger),
    _needed("sequence", BigInteger),
    _needed("received_at", Double),
    _needed("digest", LargeBinary),
    _needed("payload", LargeBinary),
    _unique(*NOTICE_KEY),
    Index("ix_notice_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

# The names of a batch's signals, in the order of its values; nearly all batches share one row, so a new signal
# needs no migration and costs its eight bytes.
name_set = Table("name_set", metadata, _id(), _needed("names", Text, unique=True))

batch = Table(
    "batch",
    metadata,
    _id(),
    _run(),
    _attempt(),
    _needed("step", BigInteger),
    _needed("update_index", UpdateIndexColumn),
    _needed("ordinal", BigInteger),
    _needed("closed_at", Double),
    _needed("n_sequences", Integer),
    _needed("n_tokens", BigInteger),
    _needed("n_ranks", Integer),
    _needed("missing_ranks", JsonColumn),
    _needed("complete", Boolean),
    _needed("revised", Boolean),
    _needed("mode", Text),
    _needed("primary_pair", Text),
    _needed("kl_is", Text),
    Column("policy_hash", Text),
    _needed("mismatches", Integer),
    _needed("last_report_id", BigInteger),
    _needed("signal_names", ForeignKey("name_set.id")),
    _needed("signals", LargeBinary),
    _needed("scalar_names", ForeignKey("name_set.id")),
    _needed("scalars", LargeBinary),
    Column("quarantined", JsonColumn),
    _unique(*BATCH_KEY),
    _unique("run_id", "ordinal"),
    Index("ix_batch_attempt_id", "attempt_id", "ordinal"),
)

decision = Table(
    "decision",
    metadata,
    _attempt(primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("update_index", UpdateIndexColumn, primary_key=True),
    Column("policy_hash", Text, primary_key=True),
    _needed("policy_name", Text),
    _needed("role", Text),
    _needed("counts", JsonColumn),
    Column("mask_rate", NumberColumn),
    _needed("accepted", LargeBinary),
)

chunk_axes = Table(
    "chunk_axes",
    metadata,
    _attempt(primary_key=True),
    Column("first_ordinal", BigInteger, primary_key=True),
    _needed("last_ordinal", BigInteger),
    _needed("first_step", BigInteger),
    _needed("last_step", BigInteger),
    _needed("axes", LargeBinary),
)

signal_chunk = Table(
    "signal_chunk",
    metadata,
    _attempt(primary_key=True),
    Column("name", Text, primary_key=True),
    Column("first_ordinal", BigInteger, primary_key=True),
    _needed("data", LargeBinary),
)

policy_version = Table(
    "policy_version",
    metadata,
    _id(),
    _run(),
    _needed("hash", Text),
    _needed("policy", JsonColumn),
    _needed("shadows", JsonColumn),
    _needed("author", Text),
    _needed("reason", Text),
    _needed("created_at", Double),
    _needed("from_step", BigInteger),
    _needed("pinned", Boolean),
    _needed("evidence", JsonColumn),
    Index("ix_policy_version_run_id", "run_id", "id"),
)

adaptation = Table(
    "adaptation",
    metadata,
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    _needed("setting", JsonColumn),
    _needed("author", Text),
    _needed("changed_at", Double),
)

run_state = Table(
    "run_state",
    metadata,
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    _needed("report_id", BigInteger),
    _needed("notice_id", BigInteger),
    Column("ordinal", BigInteger),
    Column("version", Integer),
    Column("state", LargeBinary),
    Column("outlook", JsonColumn),
)

alert = Table(
    "alert",
    metadata,
    _id(),
    _run(),
    _needed("identity", Text),
    _needed("attempt_id", BigInteger),
    _needed("step", BigInteger),
    _needed("update_index", UpdateIndexColumn),
    _needed("rule", Text),
    _needed("severity", Text),
    _needed("state", Text),
    _needed("since_at", Double),
    _needed("updated_at", Double),
    Column("value", NumberColumn),
    Column("threshold", NumberColumn),
    _needed("summary", Text),
    _needed("labels", JsonColumn),
    _needed("runbook", Text),
    Column("acked_by", Text),
    Column("acked_at", Double),
    Column("ack_note", Text),
    _unique(*ALERT_KEY),
    Index("ix_alert_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

alert_event = Table(
    "alert_event",
    metadata,
    _id(),
    _run(),
    _needed("identity", Text),
    _needed("attempt_id", BigInteger),
    _needed("step", BigInteger),
    _needed("update_index", UpdateIndexColumn),
    _needed("silence_started_at", SilenceStartColumn),
    _needed("state", Text),
    _needed("at", Double),
    Column("value", NumberColumn),
    Column("threshold", NumberColumn),
    _needed("summary", Text),
    _unique(*EVENT_KEY),
    Index("ix_alert_event_run_id", "run_id"),
    sqlite_autoincrement=True,
)

delivery = Table(
    "delivery",
    metadata,
    _id(),
    _needed("receiver", Text),
    _needed("dedup_key", Text, unique=True),
    _needed("body", JsonColumn),
    _needed("state", Text),
    _needed("attempts", Integer),
    _needed("due_at", Double),
    Column("last_error", Text),
    Column("tried_at", Double),
    _needed("made_at", Double),
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE")),
    Column("episode", Text),
    _needed("told_state", Text),
    _needed("rounds", Integer),
    Column("muted", Text),
    Index("ix_delivery_due", "state", "due_at"),
    Index("ix_delivery_run_id", "run_id", "id"),
)

silence = Table(
    "silence",
    metadata,
    _id(),
    Column("project", Text),
    _needed("matchers", JsonColumn),
    _needed("author", Text),
    _needed("note", Text),
    _needed("starts_at", Double),
    _needed("ends_at", Double),
    Index("ix_silence_ends_at", "ends_at"),
    sqlite_autoincrement=True,
)

event = Table(
    "event",
    metadata,
    _id(),
    _run(),
    _needed("at", Double),
    _needed("kind", Text),
    _needed("data", JsonColumn),
    Index("ix_event_run_id", "run_id"),
    sqlite_autoincrement=True,
)

lease = Table(
    "lease",
    metadata,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text),
    _needed("fence", BigInteger),
    _needed("expires_at", Double),
)

worker = Table("worker", metadata, Column("holder", Text, primary_key=True), _needed("seen_at", Double))

token = Table(
    "token",
    metadata,
    _id(),
    _needed("name", Text, unique=True),
    _needed("digest", Text, unique=True),
    _needed("scopes", JsonColumn),
    Column("project", Text),
    _needed("created_at", Double),
    Column("expires_at", Double),
)

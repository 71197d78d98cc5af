"""What comes in and what is made of it before it is durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from trmon.domain.identity import ReportKey, RunKey
from trmon_client.core import wire
from trmon_client.core.columns import Columns


class Stored(Enum):
    """What became of a message."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A checked message on its way to the disk.

    `digest` stands for what the message says (not when it was sent or what the sender lost); `payload` is
    its stored form; `accepted` has one bit a sequence, the client's own or decided on arrival.
    """

    key: RunKey
    message: wire.Message
    digest: bytes
    payload: bytes
    n_sequences: int = 0
    n_tokens: int = 0
    accepted: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the disk says: durable under these ids, with the accepted bits that stand; `id` is the message's own."""

    status: Stored
    id: int
    run_id: int
    attempt_id: int
    accepted: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReport:
    """A durable report; `report` has no columns, `columns` decodes them on call."""

    id: int
    run_id: int
    key: ReportKey
    received_at: float
    accepted: bytes
    n_sequences: int
    n_tokens: int
    report: wire.Report
    columns: Callable[[], Columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNotice:
    """A durable message that is not a report: start, scalars, pause or finish."""

    id: int
    run_id: int
    attempt_id: int
    received_at: float
    message: wire.Start | wire.Scalars | wire.Pause | wire.Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """What came of one run since it was read, oldest first."""

    notices: list[StoredNotice] = field(default_factory=list)
    reports: list[StoredReport] = field(default_factory=list)

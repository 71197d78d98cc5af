"""What comes in and what is made of it before it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from trmon.domain.model.errors import Damaged
from trmon.domain.model.identity import ReportKey, RunKey
from trmon_client.core import wire
from trmon_client.core.columns.columns import Columns


class WriteOutcome(Enum):
    """What became of a message."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMessage:
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
class WriteResult:
    """What the disk says: durable under these ids, with the accepted bits that stand; `id` is the message's own."""

    status: WriteOutcome
    id: int
    run_id: int
    attempt_id: int
    accepted: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReport:
    """A durable report; `report` has no columns, `columns` decodes them on call. Errors, from it: Damaged."""

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
class DamagedReport:
    """A durable report that cannot be decoded: where it belongs, and why it cannot be read."""

    id: int
    run_id: int
    key: ReportKey
    received_at: float
    reason: str


AnyReport: TypeAlias = StoredReport | DamagedReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNotice:
    """A durable message that is not a report: start, scalars, pause or finish."""

    id: int
    run_id: int
    attempt_id: int
    received_at: float
    message: wire.Start | wire.Scalars | wire.Pause | wire.Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedNotice:
    """A durable message without columns that cannot be decoded, and why."""

    id: int
    run_id: int
    attempt_id: int
    received_at: float
    reason: str


AnyNotice: TypeAlias = StoredNotice | DamagedNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What came of one run since it was read, oldest first."""

    notices: list[AnyNotice] = field(default_factory=list)
    reports: list[AnyReport] = field(default_factory=list)


def decoded(reports: Iterable[AnyReport]) -> tuple[tuple[StoredReport, ...], tuple[DamagedReport, ...]]:
    """Return the reports whose columns can be decoded, with these at hand, and the damaged ones, in their order."""
    whole: list[StoredReport] = []
    damaged: list[DamagedReport] = []
    for report in reports:
        found = report if isinstance(report, DamagedReport) else _decoded(report)
        if isinstance(found, DamagedReport):
            damaged.append(found)
        else:
            whole.append(found)
    return tuple(whole), tuple(damaged)


def _decoded(report: StoredReport) -> AnyReport:
    try:
        columns = report.columns()
    except Damaged as error:
        return DamagedReport(
            id=report.id, run_id=report.run_id, key=report.key, received_at=report.received_at, reason=str(error)
        )
    return replace(report, columns=lambda: columns)

"""Messages of the client, before and after they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from trmon.domain.errors import Damaged
from trmon.domain.identity import ReportKey, RunKey
from trmon_client.core import wire
from trmon_client.core.columns import Columns


class WriteOutcome(Enum):
    """The result of writing a message."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMessage:
    """A validated message that is ready to be written.

    `digest` identifies the content of the message, without its send time and the losses of the client; `payload` is
    its stored form; `accepted` has one bit per sequence, decided by the client or on arrival.
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
    """The ids and the accepted bits under which a message is stored; `id` is the id of the message."""

    status: WriteOutcome
    id: int
    run_id: int
    attempt_id: int
    accepted: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReport:
    """A stored report; `report` has no columns, `columns()` decodes them and raises Damaged if it cannot."""

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
    """A stored report that cannot be processed: its key, and the reason.

    `is_late`: no batch takes it, since it arrived after its attempt moved to the lake, or fails the pass even so.
    """

    id: int
    run_id: int
    key: ReportKey
    received_at: float
    reason: str
    is_late: bool = False


AnyReport: TypeAlias = StoredReport | DamagedReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNotice:
    """A stored message that is not a report: start, scalars, pause or finish."""

    id: int
    run_id: int
    attempt_id: int
    received_at: float
    message: wire.Start | wire.Scalars | wire.Pause | wire.Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedNotice:
    """A stored notice that cannot be processed, and the reason."""

    id: int
    run_id: int
    attempt_id: int
    received_at: float
    reason: str


AnyNotice: TypeAlias = StoredNotice | DamagedNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The messages of one run that its worker has not read yet, oldest first."""

    notices: list[AnyNotice] = field(default_factory=list)
    reports: list[AnyReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestMessage:
    """When the newest report or scalars of a run were sent, None if it has none; `is_unread`: a message is unread."""

    sent_at: float | None
    is_unread: bool


def decode_reports(reports: Iterable[AnyReport]) -> tuple[tuple[StoredReport, ...], tuple[DamagedReport, ...]]:
    """Return the reports with decoded columns, and the damaged ones, each in their order."""
    intact: list[StoredReport] = []
    damaged: list[DamagedReport] = []
    for report in reports:
        found = report if isinstance(report, DamagedReport) else _decode_report(report)
        if isinstance(found, DamagedReport):
            damaged.append(found)
        else:
            intact.append(found)
    return tuple(intact), tuple(damaged)


def _decode_report(report: StoredReport) -> AnyReport:
    try:
        columns = report.columns()
    except Damaged as error:
        return DamagedReport(
            id=report.id, run_id=report.run_id, key=report.key, received_at=report.received_at, reason=str(error)
        )
    return replace(report, columns=lambda: columns)

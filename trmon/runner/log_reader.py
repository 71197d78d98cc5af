"""Reads the new messages of one run page by page, in the order in which they came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from trmon.domain.model.messages import AnyNotice, AnyReport, DamagedNotice, DamagedReport, StoredReport, Unread
from trmon.domain.ports import RunLog
from trmon.domain.state.run_update import Frontier

PAGE = 512

StoredMessage: TypeAlias = AnyReport | AnyNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Reports and notices in the order in which they came; `caught_up`: there are no more."""

    messages: tuple[StoredMessage, ...]
    caught_up: bool


class LogReader:
    """Reads a run's log forward; `read` is how far."""

    def __init__(self, log: RunLog, run_id: int, *, read: Frontier) -> None:
        self._log = log
        self._run_id = run_id
        self.read = read

    def page_of(self, unread: Unread) -> MessagePage:
        """Return messages that were read together with those of other runs: all since the last page."""
        return self._page(unread.notices, unread.reports, caught_up=True)

    def next_page(self) -> MessagePage:
        """Return the next messages of both kinds, never one that follows an unread message of the other kind.

        Notices are read first, so that every report that came before one of them can be read; if a page of one kind is
        full, messages of the other kind that came after its end are left for the next page.
        """
        notices = self._log.reports.notices_after(self._run_id, self.read.notice_id, limit=PAGE)
        reports = self._log.reports.after(self._run_id, self.read.report_id, limit=PAGE)
        caught_up = len(reports) < PAGE and len(notices) < PAGE
        if len(reports) == PAGE:
            end = reports[-1].received_at
            notices = tuple(takewhile(lambda notice: notice.received_at <= end, notices))
        elif len(notices) == PAGE:
            end = notices[-1].received_at
            reports = tuple(takewhile(lambda report: report.received_at <= end, reports))
        return self._page(notices, reports, caught_up=caught_up)

    def _page(self, notices: Sequence[AnyNotice], reports: Sequence[AnyReport], *, caught_up: bool) -> MessagePage:
        self.read = Frontier(
            report_id=reports[-1].id if reports else self.read.report_id,
            notice_id=notices[-1].id if notices else self.read.notice_id,
        )
        messages: list[StoredMessage] = [*notices, *reports]
        return MessagePage(messages=tuple(sorted(messages, key=_order)), caught_up=caught_up)


def _order(stored: StoredMessage) -> tuple[float, float]:
    """Messages of one request have one time: their trainer's clock orders them, and damaged ones come last."""
    if isinstance(stored, DamagedReport | DamagedNotice):
        return stored.received_at, math.inf
    message = stored.report if isinstance(stored, StoredReport) else stored.message
    return stored.received_at, message.sent_at

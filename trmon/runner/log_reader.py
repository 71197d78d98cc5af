"""Reads the new messages of one run page by page, in the order in which they came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from trmon.domain.model.messages import AnyNotice, AnyReport, DamagedNotice, DamagedReport, StoredReport, Unread
from trmon.domain.ports import RunLog
from trmon.domain.state.run_update import Frontier

PAGE = 512

StoredMessage: TypeAlias = AnyReport | AnyNotice
_Message = TypeVar("_Message", AnyReport, AnyNotice)


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

        If there are more messages than a page holds, those of its last request are left for the next one, unless there
        is no other: the rest of them may be unread.
        """
        unread = self._log.reports.unread_of(self._run_id, self.read, limit=PAGE)
        notices, reports = unread.notices, unread.reports
        full = [kind for kind in (notices, reports) if len(kind) == PAGE]
        if not full:
            return self._page(notices, reports, caught_up=True)
        end = min(_end_of_whole_requests(kind) for kind in full)
        return self._page(_through(end, notices), _through(end, reports), caught_up=False)

    def _page(self, notices: Sequence[AnyNotice], reports: Sequence[AnyReport], *, caught_up: bool) -> MessagePage:
        self.read = Frontier(
            report_id=reports[-1].id if reports else self.read.report_id,
            notice_id=notices[-1].id if notices else self.read.notice_id,
        )
        messages: list[StoredMessage] = [*notices, *reports]
        return MessagePage(messages=tuple(sorted(messages, key=_order)), caught_up=caught_up)


def _end_of_whole_requests(messages: Sequence[StoredMessage]) -> float:
    """Return when the last request came before the one that the page ends in; that one's time if there is no other."""
    end = messages[-1].received_at
    return next((message.received_at for message in reversed(messages) if message.received_at != end), end)


def _through(end: float, messages: Sequence[_Message]) -> Sequence[_Message]:
    """Return the messages through the last one that came by a time: some, even if the clock was set back."""
    n = len(messages)
    while n and messages[n - 1].received_at > end:
        n -= 1
    return messages[:n]


def _order(stored: StoredMessage) -> tuple[float, float]:
    """Messages of one request have one time: their trainer's clock orders them, and damaged ones come last."""
    if isinstance(stored, DamagedReport | DamagedNotice):
        return stored.received_at, math.inf
    message = stored.report if isinstance(stored, StoredReport) else stored.message
    return stored.received_at, message.sent_at

"""The operations of the writer, and the transaction that a group of them shares."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection

from trmon.domain.identity import RunKey
from trmon.domain.pipeline.publish import EDIT, Event
from trmon.store.registry import ArrivedMessage

T = TypeVar("T")
Item = TypeVar("Item")

MAX_SECONDS = 0.020
MAX_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction of an operation.

    `events` collects events of runs, which are written last; `touched` the runs with new messages, `edited` the runs
    that a process other than their worker changed, `receivers` those with new deliveries.
    """

    connection: Connection
    events: list[tuple[int, Event]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    edited: set[int] = field(default_factory=set)
    receivers: set[str] = field(default_factory=set)

    def mark_edited(self, run_id: int) -> None:
        """Mark a run as edited and append an event that notifies its worker, which may be another process."""
        self.edited.add(run_id)
        self.events.append((run_id, Event(kind=EDIT, data={}, at=time.time())))

    def discard_events(self, run_id: int) -> None:
        """Drop the events of a deleted run: an event without its run fails the whole group."""
        self.events[:] = [(id_, event) for id_, event in self.events if id_ != run_id]


Operation = Callable[[Transaction], T]
"""Writes rows. An operation that raises a TrmonError has changed no cache."""
Handler = Callable[[Transaction, Sequence[Item]], Sequence[T]]
"""Writes many items at once and returns a result for each, in order."""


RunRef = int | RunKey | ArrivedMessage
"""A run by its id or its name, or by a message of it, which may be its first."""


@dataclass(frozen=True, slots=True)
class WriteItem:
    """An item in the queue with its handler and the future of its caller; `run` is the run whose rows it writes."""

    handler: Handler[Any, Any]
    item: Any
    future: Future[Any]
    run: RunRef | None = None


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """The result of an item whose handler raised."""

    error: Exception


@dataclass(slots=True)
class WriteGroup:
    """The items of one transaction and their results, which callers get after the commit."""

    items: list[WriteItem] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    began_at: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds since the group began."""
        return time.perf_counter() - self.began_at

    @property
    def full(self) -> bool:
        """Whether to commit now, even if more items wait."""
        return len(self.items) >= MAX_OPERATIONS or self.seconds >= MAX_SECONDS

    def slices(self) -> list[list[WriteItem]]:
        """Return the items in slices: consecutive items that share a handler."""
        return [list(items) for _, items in groupby(self.items, key=attrgetter("handler"))]

    def fail(self, error: Exception) -> None:
        """Give every caller the error that prevented the commit."""
        for item in self.items:
            item.future.set_exception(error)

    def resolve(self) -> None:
        """Give every caller its result: it is on disk."""
        for item, result in zip(self.items, self.results, strict=True):
            if isinstance(result, FailedWrite):
                item.future.set_exception(result.error)
            else:
                item.future.set_result(result)

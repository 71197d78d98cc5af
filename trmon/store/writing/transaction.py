"""What the writer does together: operations, and the transaction they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection

from trmon.domain.model.identity import RunKey
from trmon.domain.state.run_update import EDIT, Event
from trmon.store.registry.registry_entries import ArrivedMessage

T = TypeVar("T")
Item = TypeVar("Item")

MAX_SECONDS = 0.020
MAX_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class Transaction:
    """What an operation writes through.

    `said` collects events of runs, written at the end; `touched` the runs for which something came, `edited` those
    that somebody beside their worker changed, `addressed` the receivers that something is to be told to.
    """

    connection: Connection
    said: list[tuple[int, Event]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    edited: set[int] = field(default_factory=set)
    addressed: set[str] = field(default_factory=set)

    def edit(self, run_id: int) -> None:
        """Note that somebody beside a run's worker has changed it: its worker hears of it, wherever it is."""
        self.edited.add(run_id)
        self.said.append((run_id, Event(kind=EDIT, data={}, at=time.time())))

    def unsay(self, run_id: int) -> None:
        """Take back what was said of a run that is gone: an event without its run fails the whole group."""
        self.said[:] = [(id_, event) for id_, event in self.said if id_ != run_id]


Operation = Callable[[Transaction], T]
"""Writes something. One that raises a TrmonError has written nothing that anybody remembers."""
Handler = Callable[[Transaction, Sequence[Item]], Sequence[T]]
"""Writes many items at once and answers each, in order."""


RunRef = int | RunKey | ArrivedMessage
"""A run by its id or its name, or by a message of it, which may be the first that is heard of it."""


@dataclass(frozen=True, slots=True)
class WriteItem:
    """An item that waits for its handler, and the future its caller waits for; `run` is whose rows it writes."""

    handler: Handler[Any, Any]
    item: Any
    future: Future[Any]
    run: RunRef | None = None


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """The result of a work that raised."""

    error: Exception


@dataclass(slots=True)
class WriteGroup:
    """The works of one transaction and their results, which nobody sees before it is committed."""

    works: list[WriteItem] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    began_at: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.perf_counter() - self.began_at

    @property
    def full(self) -> bool:
        """Whether it is time to commit, whatever still waits."""
        return len(self.works) >= MAX_OPERATIONS or self.seconds >= MAX_SECONDS

    def slices(self) -> list[list[WriteItem]]:
        """Return its works, those in a row that share a handler together."""
        return [list(works) for _, works in groupby(self.works, key=attrgetter("handler"))]

    def fail(self, error: Exception) -> None:
        """Hand every caller the error for which nothing was committed."""
        for work in self.works:
            work.future.set_exception(error)

    def resolve(self) -> None:
        """Hand every caller the result: it is on the disk."""
        for work, result in zip(self.works, self.results, strict=True):
            if isinstance(result, FailedWrite):
                work.future.set_exception(result.error)
            else:
                work.future.set_result(result)

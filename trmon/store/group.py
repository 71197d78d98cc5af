"""What the writer does together: operations, and the transaction they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")
Item = TypeVar("Item")

MAX_SECONDS = 0.020
MAX_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class Transaction:
    """What an operation writes through; `touched` collects the runs it changed."""

    connection: Connection
    touched: set[int] = field(default_factory=set)


Operation = Callable[[Transaction], T]
"""Writes something. One that raises a TrmonError has written nothing that anybody remembers."""
Handler = Callable[[Transaction, Sequence[Item]], Sequence[T]]
"""Writes many items at once and answers each, in order."""


@dataclass(frozen=True, slots=True)
class Work:
    """An item that waits for its handler, and the future its caller waits for."""

    handler: Handler[Any, Any]
    item: Any
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a work that raised."""

    error: Exception


@dataclass(slots=True)
class Group:
    """The works of one transaction and their results, which nobody sees before it is committed."""

    works: list[Work] = field(default_factory=list)
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

    def fail(self, error: Exception) -> None:
        """Hand every caller the error for which nothing was committed."""
        for work in self.works:
            work.future.set_exception(error)

    def resolve(self) -> None:
        """Hand every caller the result: it is on the disk."""
        for work, result in zip(self.works, self.results, strict=True):
            if isinstance(result, Failed):
                work.future.set_exception(result.error)
            else:
                work.future.set_result(result)

"""Tails: the newest committed messages of each run in memory, since what the worker reads is mostly what just came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_BYTES = 64 << 20


@dataclass(slots=True)
class _Tail(Generic[T]):
    """Everything of a run with a larger id than `complete_after`: id, bytes and message, oldest first."""

    complete_after: int
    items: deque[tuple[int, int, T]] = field(default_factory=deque)


class Tails(Generic[T]):
    """Messages by run, as long as the worker has not read them and there is room; may be used from any thread.

    Only for a process that writes alone: it sees every message of every run, in the order of their ids. The tables
    stay the truth: whatever is not here is read from them.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tails: dict[int, _Tail[T]] = {}
        self._oldest: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._lock = Lock()

    def add(self, run_id: int, id_: int, message: T, *, n_bytes: int) -> None:
        """Take a message that is committed; what finds no room, oldest first, is left to the tables."""
        with self._lock:
            tail = self._tails.get(run_id)
            if tail is None:
                tail = self._tails[run_id] = _Tail(complete_after=id_ - 1)
            tail.items.append((id_, n_bytes, message))
            self._oldest.append((run_id, id_))
            self._bytes += n_bytes
            self._make_room()

    def read(self, run_id: int, id_: int, *, limit: int, tables: Callable[[], list[T]]) -> list[T]:
        """Return a run's messages with a larger id, oldest first, and drop those of an id up to it.

        Args: tables: reads the same from the tables; asked where not all of it is here.
        """
        handed = self._after(run_id, id_, limit=limit)
        if handed is not None:
            return handed
        self._begin(run_id, id_)
        found: list[T] | None = None
        try:
            found = tables()
        finally:
            if found is None or len(found) >= limit:
                self._end(run_id)
        return found

    def _after(self, run_id: int, id_: int, *, limit: int) -> list[T] | None:
        with self._lock:
            tail = self._tails.get(run_id)
            if tail is None or id_ < tail.complete_after:
                return None
            while tail.items and tail.items[0][0] <= id_:
                self._drop(tail)
            return [message for _, _, message in list(tail.items)[:limit]]

    def _begin(self, run_id: int, id_: int) -> None:
        """Keep all that comes from now on: what came before is in the tables, which are read next."""
        with self._lock:
            self._tails.setdefault(run_id, _Tail(complete_after=id_)).complete_after = id_

    def _end(self, run_id: int) -> None:
        """More waits in the tables than was read of them: what comes meanwhile is not all that follows."""
        with self._lock:
            tail = self._tails.pop(run_id, None)
            self._bytes -= sum(n_bytes for _, n_bytes, _ in tail.items) if tail else 0

    def forget(self) -> None:
        """Drop everything: what was added may have been undone."""
        with self._lock:
            self._tails.clear()
            self._oldest.clear()
            self._bytes = 0

    def _make_room(self) -> None:
        while self._oldest:
            run_id, id_ = self._oldest[0]
            tail = self._tails.get(run_id)
            waits = tail is not None and bool(tail.items) and tail.items[0][0] <= id_
            if waits and self._bytes <= self._max_bytes:
                return
            self._oldest.popleft()
            if tail is not None and waits:
                self._drop(tail)

    def _drop(self, tail: _Tail[T]) -> None:
        tail.complete_after, n_bytes, _ = tail.items.popleft()
        self._bytes -= n_bytes

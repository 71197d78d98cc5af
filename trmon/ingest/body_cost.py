"""What a request body costs: memory reserved before it is used, work charged to its caller, threads in fair turns."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from trmon.domain.errors import Overloaded, TooLarge
from trmon_client.core import wire

Result = TypeVar("Result")
Body = bytes | bytearray

MEASURE_SECONDS = 1.0
"""How long released bytes are counted before they become a rate."""
MAX_RETRY_SECONDS = 60.0


class MemoryBudget:
    """Counts the bytes of bodies in memory by caller, and how fast they are released; thread-safe.

    A caller may hold at most as many bytes as stay free: one caller alone half of the limit, n callers 1/(n + 1) each.
    So no number of callers can use it up, and a caller who comes later always gets a share.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()
        self._released = 0
        self._measured_since = time.monotonic()
        self._per_second = 0.0
        self._lock = Lock()

    def reserve(self, n_bytes: int, *, caller: str, already_bytes: int = 0) -> None:
        """Reserve bytes for a request; always possible if no other request has reserved any.

        Args: already_bytes: what the same request has reserved before.
        Errors: Overloaded, with nothing reserved.
        """
        with self._lock:
            held_bytes = self._bytes_of[caller]
            free_bytes = self._max_bytes - self._bytes
            if self._bytes > already_bytes and held_bytes + n_bytes > free_bytes - n_bytes:
                seconds = self._bytes / self._per_second if self._per_second else 1.0
                raise Overloaded(
                    f"{held_bytes} bytes of this caller's requests wait, and {free_bytes} of {self._max_bytes} are "
                    "free; a caller may hold as many as stay free; TRMON_MAX_HELD_BYTES raises the limit",
                    retry_after_seconds=min(max(seconds, 1.0), MAX_RETRY_SECONDS),
                )
            self._bytes += n_bytes
            self._bytes_of[caller] += n_bytes

    def release(self, n_bytes: int, *, caller: str) -> None:
        """Release a caller's reserved bytes."""
        with self._lock:
            self._bytes -= n_bytes
            self._bytes_of[caller] -= n_bytes
            if not self._bytes_of[caller]:
                del self._bytes_of[caller]
            self._released += n_bytes
            now = time.monotonic()
            if now - self._measured_since >= MEASURE_SECONDS:
                self._per_second = self._released / (now - self._measured_since)
                self._released, self._measured_since = 0, now


MAX_THREADS = 2


class FairPool:
    """A few threads for costly bodies, for which callers wait in turn; for one event loop.

    The next caller in turn gets a free thread for one piece of work, so that one who sends much delays another by the
    pieces that run, not by those that wait.
    """

    def __init__(self) -> None:
        self._free = min(MAX_THREADS, os.cpu_count() or 1)
        self._executor = ThreadPoolExecutor(self._free, thread_name_prefix="trmon-bodies")
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, work: Callable[[], Result], *, caller: str) -> Result:
        """Return the result of a short piece of work, which a thread runs in the caller's turn."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._start_next()
        try:
            await turn
            return await loop.run_in_executor(self._executor, work)
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._start_next()

    def _start_next(self) -> None:
        while self._free and self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


BYTES_PER_REQUEST = 1 << 20
ELEMENTS_PER_REQUEST = 1 << 14
"""Unpacking this many bytes, or decoding this many elements, takes a thread about as long as an ordinary request."""


class BodyCost:
    """The memory that one request holds until it ends, and its work, which the caller's rate limit is charged for."""

    def __init__(self, costs: BodyCosts, *, caller: str) -> None:
        self._costs = costs
        self._caller = caller
        self._held_bytes = 0
        self._n_bytes = self._n_elements = 0

    def hold(self, n_bytes: int) -> None:
        """Change the reserved memory to a total. Errors: Overloaded, with the reservation as before."""
        change = n_bytes - self._held_bytes
        if change > 0:
            self._costs.budget.reserve(change, caller=self._caller, already_bytes=self._held_bytes)
        elif change:
            self._costs.budget.release(-change, caller=self._caller)
        self._held_bytes = n_bytes

    @contextmanager
    def holding(self, n_bytes: int) -> Iterator[None]:
        """Reserve more memory for a while. Errors: Overloaded."""
        before = self._held_bytes
        self.hold(before + n_bytes)
        try:
            yield
        finally:
            self.hold(before)

    def count(self, *, n_bytes: int = 0, n_elements: int = 0) -> None:
        """Add unpacked bytes or decoded elements to the work of the request."""
        self._n_bytes += n_bytes
        self._n_elements += n_elements

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of a piece of work, which a thread runs in the caller's turn."""
        return await self._costs.pool.run(work, caller=self._caller)

    def end(self) -> None:
        """Release the memory and charge the caller; an ordinary request costs no more than the one it is."""
        self.hold(0)
        n = self._n_bytes // BYTES_PER_REQUEST + self._n_elements // ELEMENTS_PER_REQUEST
        if n:
            self._costs.charge(self._caller, n)


class BodyCosts:
    """The memory and threads that all requests share for their bodies.

    Args: charge: takes a number of requests from a caller's rate limit.
    """

    def __init__(self, *, max_held_bytes: int, charge: Callable[[str, int], None]) -> None:
        self.budget = MemoryBudget(max_held_bytes)
        self.pool = FairPool()
        self.charge = charge

    def of(self, caller: str) -> BodyCost:
        """Return the cost of a new request."""
        return BodyCost(self, caller=caller)


MAX_ELEMENTS = 1 << 20
"""Most values in a body, with those inside of lists and mappings: a JSON report of 11,000 sequences."""
ELEMENT_BYTES = 96
"""The memory of a decoded element at most, as measured for lists of empty lists and mappings of short keys."""
COUNT_STEP = 1 << 20
YIELD_MASK = (1 << 12) - 1
YIELD_SECONDS = 1e-5


def count_elements(body: Body, *, media_type: str, at_most: int = MAX_ELEMENTS) -> int:
    """Return a bound on the objects that decoding a body makes, without decoding it; above `at_most` any larger number.

    In MessagePack every element begins with a byte that states its length. In JSON every value follows one of four
    characters, which strings may hold too.
    """
    if len(body) <= at_most:
        return len(body)
    if media_type != wire.JSON:
        return _count_msgpack(body, at_most)
    n = 1
    for start in range(0, len(body), COUNT_STEP):
        n += sum(body.count(mark, start, start + COUNT_STEP) for mark in (b",", b":", b"[", b"{"))
        if n > at_most:
            break
    return n


def _count_msgpack(body: Body, at_most: int) -> int:
    sizes, end = _SIZES, len(body)
    n = at = 0
    while at < end:
        kind = body[at]
        size = sizes[kind]
        at += size or 1
        n += 1
        if not size:
            width = _WIDTHS[kind]
            at += width + int.from_bytes(body[at : at + width], "big") + (kind in _EXTENSIONS)
        if n > at_most:
            break
        if not n & YIELD_MASK:
            # Without it the event loop waits 5 ms for its turn, several times in a request.
            time.sleep(YIELD_SECONDS)
    return n


_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""The bytes of the length of binaries, extensions and texts."""
_EXTENSIONS = (0xC7, 0xC8, 0xC9)
_FIXED = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9} | dict(
    zip(range(0xD4, 0xD9), (3, 4, 6, 10, 18), strict=True)
)
_HEADERS = {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
"""Arrays and mappings, whose elements follow."""
_SIZES = [
    kind - 0xA0 + 1 if 0xA0 <= kind <= 0xBF else 0 if kind in _WIDTHS else (_FIXED | _HEADERS).get(kind, 1)
    for kind in range(256)
]
"""The bytes of an element by its first byte; 0 if it states its length."""


def check_elements(n: int) -> None:
    """Refuse a body with too many elements. Errors: TooLarge."""
    if n > MAX_ELEMENTS:
        raise TooLarge(
            f"a body may hold at most {MAX_ELEMENTS} values, also inside of lists; send fewer messages at a time, a "
            "report in chunks, or its columns as bytes"
        )

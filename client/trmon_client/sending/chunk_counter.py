"""Number repeated calls under one (step, update), and report how many there were."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from trmon_client.core.wire import ChunkCount

REMEMBERED = 256
"""How many past updates keep their numbering, in case the trainer returns to one."""

REPORTED_AT_ONCE = 16
"""How many counts one call reports; when the queue is full, they would pile up, and each call would copy them all."""

Key = tuple[int, "int | None"]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """The index of one call in its update, how many the trainer announced, and the counts to be reported with it."""

    step: int
    update: int | None
    index: int
    announced: int | None
    finished: list[ChunkCount]


class ChunkCounter:
    """Numbers calls, and keeps the count of each finished update until a message reports it."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Key, int] = OrderedDict()
        self._open: Key | None = None
        self._unreported: dict[Key, None] = {}

    def next(self, step: int, update: int | None, *, chunks: int | None) -> ChunkPlace:
        """Number a call within its update; the previous update, or this one if complete, is now unreported."""
        key = (step, update)
        if self._open not in (None, key):
            self.finish()
        index = self._counts.get(key, 0)
        self._counts[key] = index + 1
        self._counts.move_to_end(key)
        self._open = key
        if chunks == index + 1:
            self.finish()
        if len(self._counts) > REMEMBERED:
            forgotten, _ = self._counts.popitem(last=False)
            self._unreported.pop(forgotten, None)
        return ChunkPlace(step, update, index, chunks, self.unreported(at_most=REPORTED_AT_ONCE))

    def finish(self) -> None:
        """Finish the open update: its count is unreported."""
        if self._open is not None:
            self._unreported[self._open] = None
            self._open = None

    def unreported(self, *, at_most: int = REMEMBERED) -> list[ChunkCount]:
        """Return the counts that no message has reported yet, oldest first."""
        return [ChunkCount(*key, chunks=self._counts[key]) for key in islice(self._unreported, at_most)]

    def mark_reported(self, counts: list[ChunkCount]) -> None:
        """Remove counts that a message reports."""
        for count in counts:
            self._unreported.pop((count.step, count.update), None)

"""Chunks: the numbering of repeated calls under one (step, update), and the statement of how many there were."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from trmon_client.core.wire import ChunkCount

REMEMBERED = 256
"""How many past updates keep their numbering, in case the trainer comes back to one."""

Key = tuple[int, "int | None"]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """One call: its place in its update, and the counts to be stated with it."""

    step: int
    update: int | None
    index: int
    finished: list[ChunkCount]


class ChunkCounter:
    """Numbers calls and owes a count for every update until one is handed over with a message."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Key, int] = OrderedDict()
        self._open: Key | None = None
        self._owed: dict[Key, None] = {}

    def next(self, step: int, update: int | None, *, chunks: int | None) -> ChunkPlace:
        """Number a call within its update; the update before, or this one if complete, is now owed."""
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
            self._owed.pop(forgotten, None)
        return ChunkPlace(step, update, index, self.owed())

    def finish(self) -> None:
        """End the open update: its count is owed."""
        if self._open is not None:
            self._owed[self._open] = None
            self._open = None

    def owed(self) -> list[ChunkCount]:
        """Return the counts still to be stated."""
        return [ChunkCount(*key, chunks=self._counts[key]) for key in self._owed]

    def stated(self, counts: list[ChunkCount]) -> None:
        """Settle counts that were handed over."""
        for count in counts:
            self._owed.pop((count.step, count.update), None)

"""Which id a row got in this database, by the one it had where it was exported."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable


class RowIds:
    """Pairs of ids, both growing: rows are taken in in the order in which they were first stored."""

    def __init__(self) -> None:
        self._old, self._new = array("q"), array("q")

    def extend(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Add rows, by the old and the new id, beyond those there are."""
        for old, new in pairs:
            self._old.append(old)
            self._new.append(new)

    def through(self, old: int) -> int:
        """Return the new id of the newest row up to an old id, 0 where there is none: older rows may be pruned."""
        place = bisect_right(self._old, old)
        return self._new[place - 1] if place else 0

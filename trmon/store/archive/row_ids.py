"""Map the ids of archived rows to the ids they get in this database."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable


class RowIds:
    """Pairs of old and new ids, both ascending: an import inserts rows in the order in which they were first stored."""

    def __init__(self) -> None:
        self._old, self._new = array("q"), array("q")

    def extend(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Append pairs of an old and a new id, larger than all before them."""
        for old, new in pairs:
            self._old.append(old)
            self._new.append(new)

    def newest_up_to(self, old: int) -> int:
        """Return the new id of the newest row up to an old id; 0 if there is none, since older rows may be pruned."""
        index = bisect_right(self._old, old)
        return self._new[index - 1] if index else 0

"""A cache of bounded size for what takes long to read and never changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """The most recently used values, up to a total size; may be used from any thread."""

    def __init__(self, size: int, *, size_of: Callable[[T], int] = lambda _: 1) -> None:
        self._room = size
        self._size_of = size_of
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value, made if it is not in memory; two threads may make it at the same time."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self._room -= self._size_of(made)
            while self._room < 0:
                self._room += self._size_of(self._values.popitem(last=False)[1])
        return made

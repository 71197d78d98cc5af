"""Types that are read from documents, made ready for threads.

msgspec 0.22 notes what a type's fields are when it first reads one, in steps between which other threads run: one that
reads the same type meanwhile ends the process. A Decoder notes it all when it is made, so each is made at import, or by
`ready` where none is needed.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decodable(kind: type[T]) -> type[T]:
    """Return a struct or a dataclass that `msgspec.convert` may make in any thread; a decorator."""
    msgspec.json.Decoder(kind)
    return kind

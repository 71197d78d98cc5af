"""Prepares types for decoding in several threads.

msgspec 0.22 inspects the fields of a type on first use, in steps between which other threads run; a second thread that
decodes the same type meanwhile crashes the process. Creating a Decoder completes the inspection, so decoders are
created at import, and `decodable` creates one for types without a decoder of their own.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decodable(kind: type[T]) -> type[T]:
    """Decorate a struct or a dataclass so that `msgspec.convert` can build it in any thread."""
    msgspec.json.Decoder(kind)
    return kind

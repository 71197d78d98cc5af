"""Keyset pagination: a cursor is the key of the last row, so new rows neither shift nor repeat a page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from trmon.domain.model.errors import InvalidInput

T = TypeVar("T")

BEYOND = 1 << 63
"""Ids are smaller than this."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Items and the cursor of the next page, None on the last page."""

    items: tuple[T, ...]
    next: str | None = None


def page_of(items: Sequence[T], *, limit: int, key: Callable[[T], tuple[int, ...]]) -> Page[T]:
    """Return the first `limit` items as a page; an additional item means that another page follows."""
    shown = items[:limit]
    return Page(tuple(shown), encode_cursor(key(shown[-1])) if shown and len(items) > limit else None)


def encode_cursor(key: tuple[int, ...]) -> str:
    """Return a key as an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")


def decode_cursor(cursor: str, *, length: int) -> tuple[int, ...]:
    """Return the key of a cursor. Errors: InvalidInput for an invalid cursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.msgpack.decode(raw, type=tuple[int, ...])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise InvalidInput("after", "must be the `next` of an earlier page") from error
    if len(key) != length or max(key) >= BEYOND:
        raise InvalidInput("after", "must be the `next` of an earlier page of the same list")
    return key

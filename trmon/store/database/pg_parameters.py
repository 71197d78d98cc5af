"""Encode parameters for PostgreSQL; arrays use its binary format, which costs a tenth of the text format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg.pq import Format
from sqlalchemy import ARRAY, Dialect
from sqlalchemy.types import TypeEngine

Packer = Callable[[Any], bytes | None]
"""Returns the encoded value; None for NULL."""

_HEAD = Struct("!iiIii")
"""Number of dimensions, NULL flag (the server ignores it), type of the items, their number, index of the first."""
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i")
_NULL = _LENGTH.pack(-1)


def _fixed_size(layout: str) -> Callable[[Any], bytes]:
    whole = Struct(f"!i{layout}")
    length, pack = Struct(f"!{layout}").size, whole.pack
    return lambda value: pack(length, value)


def _with_length(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


_ITEMS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "BIGINT": (20, _fixed_size("q")),
    "INTEGER": (23, _fixed_size("i")),
    "DOUBLE PRECISION": (701, _fixed_size("d")),
    "BOOLEAN": (16, _fixed_size("?")),
    "TEXT": (25, lambda value: _with_length(value.encode())),
    "BYTEA": (17, _with_length),
}
"""The OID of each type, and the function that encodes a value with its length."""


def packer_of(kind: TypeEngine[Any], dialect: Dialect) -> tuple[Packer, Format]:
    """Return the encoder of a type and its format: binary for arrays, text for other types."""
    if not isinstance(kind, ARRAY):
        return _text, Format.TEXT
    oid, encode = _ITEMS[kind.item_type.compile(dialect)]

    def pack(values: Sequence[Any]) -> bytes:
        if not values:
            return _EMPTY.pack(0, 0, oid)
        items = [_NULL if value is None else encode(value) for value in values]
        return b"".join((_HEAD.pack(1, 1, oid, len(items), 1), *items))

    return pack, Format.BINARY


def _text(value: str | float | None) -> bytes | None:
    return None if value is None else str(value).encode()

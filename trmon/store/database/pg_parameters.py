"""Parameters as PostgreSQL reads them off the wire: arrays in its binary form, which costs a tenth of its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from psycopg.pq import Format
from sqlalchemy import ARRAY, Dialect
from sqlalchemy.types import TypeEngine

Packer = Callable[[Any], bytes | None]
"""Returns what a value is sent as; None for NULL."""

_HEAD = Struct("!iiIii")
"""Dimensions, whether some are NULL (the server looks for itself), the items' type, their number, the first's place."""
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i")
_NULL = _LENGTH.pack(-1)


def _fixed(layout: str) -> Callable[[Any], bytes]:
    whole = Struct(f"!i{layout}")
    length, pack = Struct(f"!{layout}").size, whole.pack
    return lambda value: pack(length, value)


def _sized(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


_ITEMS: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "BIGINT": (20, _fixed("q")),
    "INTEGER": (23, _fixed("i")),
    "DOUBLE PRECISION": (701, _fixed("d")),
    "BOOLEAN": (16, _fixed("?")),
    "TEXT": (25, lambda value: _sized(value.encode())),
    "BYTEA": (17, _sized),
}
"""The number that PostgreSQL knows a type by, and what writes a value of it with its length."""


def packer_of(kind: TypeEngine[Any], dialect: Dialect) -> tuple[Packer, Format]:
    """Return what packs values of a type of PostgreSQL, and in which form: arrays in binary form, others as text."""
    if not isinstance(kind, ARRAY):
        return _text, Format.TEXT
    number, write = _ITEMS[kind.item_type.compile(dialect)]

    def pack(values: Sequence[Any]) -> bytes:
        if not values:
            return _EMPTY.pack(0, 0, number)
        items = [_NULL if value is None else write(value) for value in values]
        return b"".join((_HEAD.pack(1, 1, number, len(items), 1), *items))

    return pack, Format.BINARY


def _text(value: str | float | None) -> bytes | None:
    return None if value is None else str(value).encode()

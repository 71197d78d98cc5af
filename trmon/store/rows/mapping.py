"""Rows as domain values, and lists of them in pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from sqlalchemy import Column, Select

from trmon.domain.errors import Damaged, InvalidInput
from trmon.store.schema.column_types import UNREADABLE

T = TypeVar("T")

BEYOND = 1 << 63
"""Ids are smaller than this."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """Converts a field to the value of its column and back."""

    encode: Convert
    decode: Convert


class RowMapping(Generic[T]):
    """The columns of a type, derived from its fields: each field has one column, and enums are stored by value.

    `renamed` gives the columns whose name differs from the field's, `codecs` the fields that are stored in another
    form. `composed` fields have no single column: the caller writes them, and passes them to `from_row`. `generated`
    fields are only read, such as an id that the database assigns.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        renamed: Mapping[str, str] | None = None,
        codecs: Mapping[str, Codec] | None = None,
        composed: Collection[str] = (),
        generated: Collection[str] = (),
    ) -> None:
        self._kind = kind
        own = codecs or {}
        hints = {field: hint for field, hint in get_type_hints(kind).items() if field not in composed}
        found = {field: own.get(field) or _enum_codec(hint) for field, hint in hints.items()}
        columns = {field: (renamed or {}).get(field, field) for field in hints}
        self._read = tuple(columns.items())
        self._written = tuple((field, column) for field, column in self._read if field not in generated)
        self._encoders = [(column, codec.encode) for field, column in self._written if (codec := found[field])]
        self._decoders = [(field, codec.decode) for field in columns if (codec := found[field])]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are written, in the order of the fields."""
        return tuple(column for _, column in self._written)

    def to_row(self, value: T) -> dict[str, Any]:
        """Return the columns of a value."""
        row = {column: getattr(value, field) for field, column in self._written}
        for column, encode in self._encoders:
            row[column] = encode(row[column])
        return row

    def from_row(self, row: Any, **composed: Any) -> T:
        """Return the value of a row, whose columns are attributes or keys; composed fields are keywords.

        Errors: Damaged.
        """
        if isinstance(row, Mapping):
            fields = {field: row[column] for field, column in self._read}
        else:
            fields = {field: getattr(row, column) for field, column in self._read}
        try:
            for field, decode in self._decoders:
                fields[field] = decode(fields[field])
            return self._kind(**fields, **composed)
        except Damaged:
            raise
        except UNREADABLE as error:
            raise Damaged(f"a stored {self._kind.__name__} is damaged: {error}") from error


def _enum_codec(hint: Any) -> Codec | None:
    """Return the codec of an enum, which may be optional; None for other types."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next((part for part in parts if isinstance(part, type) and issubclass(part, Enum)), None)
    if kind is None:
        return None
    return Codec(
        encode=lambda member: None if member is None else member.value,
        decode=lambda stored: None if stored is None else kind(stored),
    )


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Items and the cursor of the next page, None on the last page."""

    items: tuple[T, ...]
    next: str | None = None


def where_given(query: Select[Any], wanted: Mapping[Column[Any], object]) -> Select[Any]:
    """Return a query for the rows whose columns have the wanted values; None wants nothing."""
    return query.where(*(column == value for column, value in wanted.items() if value is not None))


def page_of(items: Sequence[T], *, limit: int, key: Callable[[T], int]) -> Page[T]:
    """Return the first `limit` items as a page; an additional item means that another page follows."""
    shown = items[:limit]
    return Page(tuple(shown), encode_cursor(key(shown[-1])) if shown and len(items) > limit else None)


def encode_cursor(key: int) -> str:
    """Return a key as an opaque cursor."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((key,))).decode().rstrip("=")


def decode_cursor(cursor: str) -> int:
    """Return the key of a cursor. Errors: InvalidInput for an invalid cursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.msgpack.decode(raw, type=tuple[int, ...])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise InvalidInput("after", "must be the `next` of an earlier page") from error
    if len(key) != 1 or key[0] >= BEYOND:
        raise InvalidInput("after", "must be the `next` of an earlier page of the same list")
    return key[0]

"""Column types for values that SQL cannot store directly."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator

Id = BigInteger().with_variant(Integer(), "sqlite")
"""A generated key; SQLite only generates INTEGER keys."""


class _ConvertedColumn(TypeDecorator[Any]):
    """A column that stores a value in another form, the same on every database."""

    @staticmethod
    def encode(value: Any) -> Any:
        """Return the stored form of a value."""
        raise NotImplementedError

    @staticmethod
    def decode(value: Any) -> Any:
        """Return the value of a stored form."""
        raise NotImplementedError

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Encode a parameter."""
        return self.encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Decode a result."""
        return self.decode(value)


class NumberColumn(_ConvertedColumn):
    """A float that may be NaN; SQLite stores NaN as NULL, so NULL means NaN on every database."""

    impl = Double
    cache_ok = True

    @staticmethod
    def encode(value: float) -> float | None:
        """Return the number or NULL."""
        return None if math.isnan(value) else float(value)

    @staticmethod
    def decode(value: float | None) -> float:
        """Return the number or NaN."""
        return math.nan if value is None else value


class JsonColumn(_ConvertedColumn):
    """A JSON document as text; NaN becomes null, as on the wire."""

    impl = Text
    cache_ok = True

    @staticmethod
    def encode(value: Any) -> str | None:
        """Return the text, or None without a document."""
        return None if value is None else msgspec.json.encode(value).decode()

    @staticmethod
    def decode(value: str | None) -> Any:
        """Return the document."""
        return None if value is None else msgspec.json.decode(value)


class UpdateIndexColumn(_ConvertedColumn):
    """The update of a batch; None is stored as -1, because NULLs are distinct in a unique key and None sorts first."""

    impl = BigInteger
    cache_ok = True
    coerce_to_is_types = ()

    @staticmethod
    def encode(value: int | None) -> int:
        """Return the index or -1."""
        return -1 if value is None else value

    @staticmethod
    def decode(value: int) -> int | None:
        """Return the index or None."""
        return None if value < 0 else value


class SilenceStartColumn(_ConvertedColumn):
    """The start of a silence; None, for rules without a clock, is stored as 0 because NULLs are distinct."""

    impl = Double
    cache_ok = True

    @staticmethod
    def encode(value: float | None) -> float:
        """Return the time or 0."""
        return value or 0.0

    @staticmethod
    def decode(value: float) -> float | None:
        """Return the time or None."""
        return value or None

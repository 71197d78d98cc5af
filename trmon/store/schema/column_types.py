"""How values that SQL has no word for lie in columns."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator

Id = BigInteger().with_variant(Integer(), "sqlite")
"""A generated key; SQLite generates only for INTEGER."""


class _Written(TypeDecorator[Any]):
    """A column that writes a value as another one and reads it back, the same on every database."""

    @staticmethod
    def written(value: Any) -> Any:
        """Return what lies in the column."""
        raise NotImplementedError

    @staticmethod
    def read(value: Any) -> Any:
        """Return what was meant."""
        raise NotImplementedError

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Write."""
        return self.written(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Read."""
        return self.read(value)


class NumberColumn(_Written):
    """A float that may be NaN: SQLite turns NaN into NULL, so NULL is NaN on every database."""

    impl = Double
    cache_ok = True

    @staticmethod
    def written(value: float) -> float | None:
        """Return the number or NULL."""
        return None if math.isnan(value) else float(value)

    @staticmethod
    def read(value: float | None) -> float:
        """Return the number or NaN."""
        return math.nan if value is None else value


class JsonColumn(_Written):
    """A JSON document as text; NaN becomes null, as everywhere on the wire."""

    impl = Text
    cache_ok = True

    @staticmethod
    def written(value: Any) -> str | None:
        """Return the text; where there is no document, nothing."""
        return None if value is None else msgspec.json.encode(value).decode()

    @staticmethod
    def read(value: str | None) -> Any:
        """Return the document."""
        return None if value is None else msgspec.json.decode(value)


class UpdateIndexColumn(_Written):
    """A batch's update; None is -1, since NULLs never collide in a unique key and must sort first."""

    impl = BigInteger
    cache_ok = True
    coerce_to_is_types = ()

    @staticmethod
    def written(value: int | None) -> int:
        """Return the index or -1."""
        return -1 if value is None else value

    @staticmethod
    def read(value: int) -> int | None:
        """Return the index or None."""
        return None if value < 0 else value


class SilenceStartColumn(_Written):
    """When a silence began; None, for rules without a clock, is 0 since NULLs never collide."""

    impl = Double
    cache_ok = True

    @staticmethod
    def written(value: float | None) -> float:
        """Return the time or 0."""
        return value or 0.0

    @staticmethod
    def read(value: float) -> float | None:
        """Return the time or None."""
        return value or None

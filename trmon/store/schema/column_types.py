"""Column types for values that SQL cannot store directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator

from trmon.domain.errors import Damaged
from trmon_client.core.redaction import redact_values

Id = BigInteger().with_variant(Integer(), "sqlite")
"""A generated key; SQLite only generates INTEGER keys."""


UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.MsgspecError)
"""What decoding a value raises that nobody wrote: SQLite checks neither types nor bytes."""


class _ConvertedColumn(TypeDecorator[Any]):
    """A column that stores a value in another form, the same on every database."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Encode a parameter."""
        return self.encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's signature
        """Decode a result. Errors: Damaged."""
        try:
            return self.decode(value)
        except UNREADABLE as error:
            raise Damaged(f"a stored value is damaged: {error}") from error


class NumberColumn(_ConvertedColumn):
    """A float that may be NaN; SQLite stores NaN as NULL, so NULL means NaN on every database."""

    impl = Double
    cache_ok = True
    encode = staticmethod(lambda value: None if math.isnan(value) else float(value))
    decode = staticmethod(lambda value: math.nan if value is None else value)


class JsonColumn(_ConvertedColumn):
    """A JSON document as text; NaN becomes null, as on the wire."""

    impl = Text
    cache_ok = True
    encode = staticmethod(lambda value: None if value is None else msgspec.json.encode(value).decode())
    decode = staticmethod(lambda value: None if value is None else msgspec.json.decode(value))


class TrainerDocumentColumn(JsonColumn):
    """A JSON document of a trainer, stored without secrets."""

    cache_ok = True
    encode = staticmethod(lambda value: JsonColumn.encode(redact_values(value)))


class UpdateIndexColumn(_ConvertedColumn):
    """The update of a batch; None is stored as -1, because NULLs are distinct in a unique key and None sorts first."""

    impl = BigInteger
    cache_ok = True
    coerce_to_is_types = ()
    encode = staticmethod(lambda value: -1 if value is None else value)
    decode = staticmethod(lambda value: None if value < 0 else value)


class SilenceStartColumn(_ConvertedColumn):
    """The start of a silence; None, for rules without a clock, is stored as 0 because NULLs are distinct."""

    impl = Double
    cache_ok = True
    encode = staticmethod(lambda value: value or 0.0)
    decode = staticmethod(lambda value: value or None)

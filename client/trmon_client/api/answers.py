"""Decodes the answers of a service into frozen structs.

Fields that a newer service adds are ignored. States and kinds are strings, since a newer service may have more of them.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
_DECODING = threading.Lock()
"""Threads that decode a type for the first time at once would end the process."""


class ApiNumber(float):
    """A number of an answer: JSON's null is NaN, "inf" and "-inf" are infinities."""


class AnswerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The base of what a service answers; times are seconds since the epoch on the service's clock."""


class ItemPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list, and where the next one begins; None on the last page."""

    items: list[T]
    next: str | None


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Return an answer as a struct. Errors: ValueError naming the field that does not fit."""
    with _DECODING:
        return msgspec.json.decode(body, type=kind, dec_hook=_decode_number)


def encode_info(info: AnswerInfo) -> bytes:
    """Return a struct as the JSON of the service's answer."""
    return msgspec.json.encode(info, enc_hook=_encode_number)


def convert_answer(document: object, kind: type[T]) -> T:
    """Return a decoded JSON document as a struct. Errors: ValueError naming the field that does not fit."""
    with _DECODING:
        return msgspec.convert(document, type=kind, dec_hook=_decode_number)


def _decode_number(kind: type, value: Any) -> ApiNumber:
    if kind is not ApiNumber:
        raise NotImplementedError(kind)
    return ApiNumber(math.nan if value is None else value)


def _encode_number(value: Any) -> float | str | None:
    if not isinstance(value, ApiNumber):
        raise NotImplementedError(type(value))
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")

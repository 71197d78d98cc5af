"""Decodes the answers of a service into frozen structs.

Fields that a newer service adds are ignored. States and kinds are strings, since a newer service may have more of them.
"""

from __future__ import annotations

import json
import math
import threading
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
_PREPARING = threading.Lock()
_prepared: set[Any] = set()
"""The types that are ready to be decoded: threads that prepare one for the first time at once would end the process."""


class ApiNumber(float):
    """A number of an answer: JSON's null is NaN, "inf" and "-inf" are infinities."""


class OpenEnum(str):
    """A string of which a service lists the values in its OpenAPI document; a newer service may have more.

    An enumeration of the service whose members are fields of answers derives from it too.
    """


AdaptationMode = Annotated[OpenEnum, Meta(title="AdaptationMode")]
AlertState = Annotated[OpenEnum, Meta(title="AlertState")]
AuditAction = Annotated[OpenEnum, Meta(title="AuditAction")]
BudgetState = Annotated[OpenEnum, Meta(title="BudgetState")]
DeliveryState = Annotated[OpenEnum, Meta(title="DeliveryState")]
MatchOperator = Annotated[OpenEnum, Meta(title="MatchOperator")]
NoChangeReason = Annotated[OpenEnum, Meta(title="NoChangeReason")]
PipelineKind = Annotated[OpenEnum, Meta(title="PipelineKind")]
PolicyRole = Annotated[OpenEnum, Meta(title="PolicyRole")]
Presence = Annotated[OpenEnum, Meta(title="Presence")]
QuarantinePart = Annotated[OpenEnum, Meta(title="QuarantinePart")]
Resolution = Annotated[OpenEnum, Meta(title="Resolution")]
RiskLevel = Annotated[OpenEnum, Meta(title="RiskLevel")]
RunState = Annotated[OpenEnum, Meta(title="RunState")]
Scope = Annotated[OpenEnum, Meta(title="Scope")]
Severity = Annotated[OpenEnum, Meta(title="Severity")]
Urgency = Annotated[OpenEnum, Meta(title="Urgency")]
VerdictKind = Annotated[OpenEnum, Meta(title="VerdictKind")]
Word = Annotated[OpenEnum, Meta(title="Word")]


def says(description: str) -> Meta:
    """Return what OpenAPI says of a field."""
    return Meta(description=description)


class AnswerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The base of what a service answers; times are seconds since the epoch on the service's clock."""

    @classmethod
    def from_fields(cls, source: object = None, /, **fields: Any) -> Self:
        """Return an answer with the attributes of a value; `fields` are those that it lacks or names otherwise.

        Errors: ValueError naming the field that does not fit.
        """
        given = {name: getattr(source, name) for name in cls.__struct_fields__ if hasattr(source, name)}
        return convert_answer(given | fields, cls)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-compatible document."""
        document: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_written)
        return document


class ItemPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    next: Annotated[str | None, says("Pass it as `after` to get the next page; null on the last page.")]


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Return an answer as a struct. Errors: ValueError naming the field that does not fit."""
    prepare(kind)
    return msgspec.json.decode(body, type=kind, dec_hook=read_value)


def encode_answer(answer: object) -> bytes:
    """Return structs as the JSON of the service's answer; lone surrogates, as in names of files, become `?`."""
    try:
        return msgspec.json.encode(answer, enc_hook=_written)
    except UnicodeEncodeError:
        document = msgspec.to_builtins(answer, enc_hook=_written)
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def convert_answer(document: object, kind: type[T]) -> T:
    """Return a decoded JSON document, or a value with the attributes of a struct, as that struct.

    Errors: ValueError naming the field that does not fit.
    """
    prepare(kind)
    return msgspec.convert(document, type=kind, from_attributes=True, dec_hook=read_value)


def prepare(kind: Any) -> None:
    """Make a type ready to be decoded by several threads at once; the first call for it alone waits for others."""
    if kind not in _prepared:
        with _PREPARING:
            msgspec.json.Decoder(kind, dec_hook=read_value)
            _prepared.add(kind)


def read_value(kind: type, value: Any) -> ApiNumber | OpenEnum:
    """Return a value of an answer in its type, for msgspec's `dec_hook`. Errors: ValueError."""
    if kind is ApiNumber:
        return ApiNumber(math.nan if value is None else value)
    if kind is not OpenEnum:
        raise NotImplementedError(kind)
    value = value.value if isinstance(value, Enum) else value
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return OpenEnum(value)


def _written(value: Any) -> float | str | None:
    if isinstance(value, OpenEnum):
        return str(value)
    if not isinstance(value, ApiNumber):
        raise NotImplementedError(type(value))
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")

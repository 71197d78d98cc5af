"""Encodes and decodes messages in MessagePack and JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from trmon_client.core.wire.checks import check_message
from trmon_client.core.wire.decodable_types import decodable
from trmon_client.core.wire.errors import ANY_KEY, UNREADABLE, WireError, shorten_value, wire_error_of
from trmon_client.core.wire.messages import Ack, Acks, Bundle, JsonNumber, Message, WireColumn

T = TypeVar("T")

MSGPACK = "application/msgpack"
JSON = "application/json"

MAX_BUNDLE_MESSAGES = 4096

_MSGPACK_MESSAGE = msgspec.msgpack.Decoder(Message)
_JSON_MESSAGE = msgspec.json.Decoder(Message)
_MSGPACK_BUNDLE = msgspec.msgpack.Decoder(Bundle)
_JSON_BUNDLE = msgspec.json.Decoder(Bundle)
_ACK = msgspec.msgpack.Decoder(Ack)
_ACKS = msgspec.msgpack.Decoder(Acks)
_MSGPACK = msgspec.msgpack.Encoder()
_JSON = msgspec.json.Encoder()


@decodable
class _Mappings(msgspec.Struct):
    """The mappings of a message, with their values undecoded."""

    columns: dict[str, msgspec.Raw] = {}
    histograms: dict[str, msgspec.Raw] = {}
    scalars: dict[str, msgspec.Raw] = {}
    values: dict[str, msgspec.Raw] = {}


_VALUE_TYPES: dict[str, Any] = {
    "columns": WireColumn,
    "histograms": WireColumn,
    "scalars": JsonNumber,
    "values": JsonNumber,
}


def encode(value: Message | Ack | Acks, *, media_type: str = MSGPACK) -> bytes:
    """Return a message or an answer as bytes of the media type."""
    return (_JSON if media_type == JSON else _MSGPACK).encode(value)


def encode_bundle(messages: list[bytes]) -> bytes:
    """Return encoded MessagePack messages as one bundle, without decoding them."""
    return _MSGPACK.encode(Bundle([msgspec.Raw(message) for message in messages]))


def decode(body: bytes, *, media_type: str = MSGPACK) -> Message:
    """Return the checked message of a body.

    Errors: WireError naming the field.
    """
    decoder = _JSON_MESSAGE if media_type == JSON else _MSGPACK_MESSAGE
    try:
        message: Message = decoder.decode(body)
    except UNREADABLE as error:
        raise _error_naming_the_key(error, body, media_type) from error
    check_message(message)
    return message


def decode_bundle(body: bytes, *, media_type: str = MSGPACK) -> list[Message | WireError]:
    """Return the messages of a bundle in order, with the error in place of an invalid message.

    Errors: WireError if the bundle itself cannot be decoded.
    """
    decoder = _JSON_BUNDLE if media_type == JSON else _MSGPACK_BUNDLE
    try:
        bundle = decoder.decode(body)
    except UNREADABLE as error:
        raise wire_error_of(error) from error
    if len(bundle.messages) > MAX_BUNDLE_MESSAGES:
        raise WireError("messages", f"at most {MAX_BUNDLE_MESSAGES} messages in a bundle, got {len(bundle.messages)}")
    return [_decode_or_error(bytes(raw), media_type) for raw in bundle.messages]


def decode_ack(body: bytes) -> Ack:
    """Return the answer to one message. Errors: WireError."""
    return _decode_answer(body, _ACK)


def decode_acks(body: bytes) -> Acks:
    """Return the answers to a bundle. Errors: WireError."""
    return _decode_answer(body, _ACKS)


def _decode_answer(body: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise wire_error_of(error) from error


def _decode_or_error(body: bytes, media_type: str) -> Message | WireError:
    try:
        return decode(body, media_type=media_type)
    except WireError as error:
        return error


def _error_naming_the_key(error: Exception, body: bytes, media_type: str) -> WireError:
    """Return the error with the field and, in a mapping, the key, which msgspec does not name."""
    named = wire_error_of(error)
    mapping, any_key, rest = named.field.partition(ANY_KEY)
    if not any_key or mapping not in _VALUE_TYPES:
        return named
    codec: Any = msgspec.json if media_type == JSON else msgspec.msgpack
    try:
        values: dict[str, msgspec.Raw] = getattr(codec.decode(body, type=_Mappings), mapping)
    except UNREADABLE as unreadable:
        return wire_error_of(unreadable)
    for key, raw in values.items():
        try:
            codec.decode(raw, type=_VALUE_TYPES[mapping])
        except UNREADABLE:
            return WireError(f"{mapping}.{shorten_value(key)}{rest}", named.message)
    return named

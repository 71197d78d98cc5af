"""Encodes and decodes messages in MessagePack and JSON, and checks their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from trmon_client.core.redaction import redact, redact_values
from trmon_client.core.wire.messages import (
    ANY_KEY,
    UNREADABLE,
    WIRE_MAJOR,
    Ack,
    Acks,
    Bundle,
    ChunkCount,
    Finish,
    Heartbeat,
    JsonNumber,
    Losses,
    Message,
    Pause,
    Report,
    SavedCheckpoint,
    Scalars,
    Start,
    WireColumn,
    WireError,
    shorten_value,
    wire_error_of,
)

MAX_NAME_LENGTH = 128
MAX_TEXT_LENGTH = 4096
MAX_SCALARS = 256
MAX_TAGS = 64
MAX_LOSSES = 64
MAX_DELETED = 256
MAX_CONFIG_BYTES = 1 << 18
MAX_NESTING = 64
MAX_WORLD_SIZE = 1 << 20
_INTEGER_LIMIT = 1 << 62
_FLOAT_LIMIT = 1 << 1023


def check_message(message: Message) -> None:
    """Check the values of a message. Errors: WireError naming the first invalid field."""
    if message.wire[0] != WIRE_MAJOR:
        major, minor = message.wire
        raise WireError(
            "wire", f"version {shorten_value(major)}.{shorten_value(minor)} is not supported; supported: 1.0 to 1.x"
        )
    _check_origin(message)
    if isinstance(message, Report | Heartbeat | Finish):
        _check_losses(message.losses)
    match message:
        case Report():
            if message.parcel is None and not message.columns:
                raise WireError("columns", "is required without a parcel")
            if message.parcel is not None and (message.columns or message.histograms):
                raise WireError("parcel", "cannot be combined with columns or histograms")
            _check_name("policy", message.policy, optional=True)
            _check_scalars("scalars", message.scalars)
            _check_chunk_counts(message.finished)
            _check_count("chunks", message.chunks)
            for field in ("trainer_version", "old_version", "semantics"):
                _check_whole(field, getattr(message, field))
        case Scalars():
            _check_scalars("values", message.values)
        case Pause():
            _check_text("reason", message.reason)
            if isinstance(message.checkpoint, SavedCheckpoint):
                _check_checkpoint(message.checkpoint)
        case Finish():
            for field in ("reason", "signal", "error", "traceback"):
                _check_text(field, getattr(message, field))
            _check_whole("exit_code", message.exit_code)
            _check_chunk_counts(message.finished)
        case Start():
            _check_start(message)


def _check_checkpoint(saved: SavedCheckpoint) -> None:
    _check_text("checkpoint.path", saved.path)
    if len(saved.deleted) > MAX_DELETED:
        raise WireError("checkpoint.deleted", f"must have at most {MAX_DELETED} steps, got {len(saved.deleted)}")
    for step in (saved.step, *saved.deleted):
        _check_count("checkpoint", step)


def _check_origin(message: Message) -> None:
    for field in ("attempt", "launch"):
        _check_name(field, getattr(message, field))
    for field in ("rank", "step", "update", "chunk", "sequence"):
        _check_count(field, getattr(message, field, None))
    if not 0 < message.world_size <= MAX_WORLD_SIZE:
        raise WireError("world_size", f"must be 1 to {MAX_WORLD_SIZE}, got {shorten_value(message.world_size)}")
    if message.rank >= message.world_size:
        raise WireError("rank", f"must be below world_size ({message.world_size}), got {message.rank}")


def _check_losses(losses: Losses) -> None:
    for n in (*losses.dropped.values(), losses.spooled_bytes, losses.queued):
        _check_whole("losses", n)
    for field in ("dropped", "refused_policies", "warnings"):
        given: dict[str, int | str] = getattr(losses, field)
        if len(given) > MAX_LOSSES:
            raise WireError(f"losses.{field}", f"must have at most {MAX_LOSSES} entries, got {len(given)}")
        for name, value in given.items():
            _check_name(f"losses.{field}", name)
            if isinstance(value, str):
                _check_text(f"losses.{field}", value)


def _check_start(start: Start) -> None:
    _check_name("owner", start.owner, optional=True)
    _check_text("client", start.client)
    if len(start.tags) > MAX_TAGS:
        raise WireError("tags", f"must have at most {MAX_TAGS} tags, got {len(start.tags)}")
    for tag in start.tags:
        _check_name("tags", tag)
    _check_document("config", start.config)
    _check_document("policy", start.policy or {})


def _check_chunk_counts(finished: Sequence[ChunkCount]) -> None:
    for count in finished:
        _check_count("finished", count.step)
        _check_count("finished", count.update)
        _check_count("finished", count.chunks)


def _check_count(field: str, value: int | None) -> None:
    if value is not None and not 0 <= value < _INTEGER_LIMIT:
        raise WireError(field, f"must be zero or more and below 2**62, got {shorten_value(value)}")


def _check_whole(field: str, value: int | None) -> None:
    if value is not None and not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
        raise WireError(field, f"must be a whole number of 63 bits, got {shorten_value(value)}")


def _check_document(field: str, document: Mapping[str, object]) -> None:
    """Check that JSON can encode a document, because documents are stored as JSON."""
    if _is_nested_deeper(document, MAX_NESTING):
        raise WireError(field, f"must nest at most {MAX_NESTING} mappings and lists")
    try:
        msgspec.json.encode(document)
        n_bytes = len(msgspec.msgpack.encode(document))
    except OverflowError as error:
        raise WireError(field, "contains a whole number of more than 64 bits") from error
    except TypeError as error:
        raise WireError(field, f"contains a value that JSON cannot encode: {error}") from error
    if n_bytes > MAX_CONFIG_BYTES:
        raise WireError(field, f"must have at most {MAX_CONFIG_BYTES} bytes, got {n_bytes}")


def _is_nested_deeper(value: object, levels: int) -> bool:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_nested_deeper(item, levels - 1) for item in items)


def _check_name(field: str, name: str | None, *, optional: bool = False) -> None:
    if optional and name is None:
        return
    if name is None or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise WireError(
            field, f"must have 1 to {MAX_NAME_LENGTH} printable characters, got {shorten_value(repr(name))}"
        )


def _check_text(field: str, text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        raise WireError(field, f"must have at most {MAX_TEXT_LENGTH} characters, got {len(text)}")


def _check_scalars(field: str, scalars: dict[str, JsonNumber]) -> None:
    if len(scalars) > MAX_SCALARS:
        raise WireError(field, f"must have at most {MAX_SCALARS} scalars for a step, got {len(scalars)}")
    for name, value in scalars.items():
        _check_name(f"{field} (a scalar's name)", name)
        if isinstance(value, int) and not -_FLOAT_LIMIT < value < _FLOAT_LIMIT:
            raise WireError(f"{field}.{name}", "is too large for a float64")


M = TypeVar("M", bound=Message)


def with_safe_texts(message: M) -> M:
    """Return a message without the secrets and the control characters in its texts and its configuration.

    A text of the trainer's is never a reason to refuse a message; a second time changes nothing.
    """
    changed: dict[str, Any] = {}
    match message:
        case Start():
            changed = {name: redact_values(getattr(message, name)) for name in ("config", "policy", "owner", "tags")}
            changed["client"] = redact(message.client)
        case Pause():
            changed = {"reason": redact(message.reason)}
            if isinstance(saved := message.checkpoint, SavedCheckpoint):
                changed["checkpoint"] = msgspec.structs.replace(saved, path=redact(saved.path))
        case Finish():
            changed = {name: redact(getattr(message, name)) for name in ("reason", "signal", "error", "traceback")}
    if isinstance(message, Report | Heartbeat | Finish) and (
        message.losses.warnings or message.losses.refused_policies
    ):
        texts = {name: redact_values(getattr(message.losses, name)) for name in ("refused_policies", "warnings")}
        changed["losses"] = msgspec.structs.replace(message.losses, **texts)
    return msgspec.structs.replace(message, **changed) if changed else message


MSGPACK = "application/msgpack"
JSON = "application/json"

MAX_BUNDLE_MESSAGES = 4096
MAX_NOTICE_BYTES = 1 << 20
"""Maximum size of a message without columns: a start whose configuration has the maximum size, as JSON."""


class _Kind(msgspec.Struct):
    """The kind of a message, with everything else undecoded."""

    kind: str = ""


class _Mappings(msgspec.Struct):
    """The mappings of a message, with their values undecoded."""

    columns: dict[str, msgspec.Raw] = {}
    histograms: dict[str, msgspec.Raw] = {}
    scalars: dict[str, msgspec.Raw] = {}
    values: dict[str, msgspec.Raw] = {}


class _Codec:
    """An encoder and decoders, made at import because msgspec cannot prepare a type in two threads at once."""

    def __init__(self, codec: Any) -> None:
        self.encode: Callable[[Any], bytes] = codec.Encoder().encode
        self.message = codec.Decoder(Message)
        self.kind = codec.Decoder(_Kind)
        self.bundle = codec.Decoder(Bundle)
        self.mappings = codec.Decoder(_Mappings)
        column, number = codec.Decoder(WireColumn), codec.Decoder(JsonNumber)
        self.values = {"columns": column, "histograms": column, "scalars": number, "values": number}


_CODECS = {MSGPACK: _Codec(msgspec.msgpack), JSON: _Codec(msgspec.json)}
_ACK, _ACKS = msgspec.msgpack.Decoder(Ack), msgspec.msgpack.Decoder(Acks)


def _decoded(body: bytes | bytearray, decoder: Any) -> Any:
    """Return what the decoder makes of a body. Errors: WireError naming the field."""
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise wire_error_of(error) from error


def encode(value: Message | Ack | Acks, *, media_type: str = MSGPACK) -> bytes:
    """Return a message or an answer as bytes of the media type."""
    return _CODECS[media_type].encode(value)


def encode_bundle(messages: list[bytes]) -> bytes:
    """Return encoded MessagePack messages as one bundle, without decoding them."""
    return _CODECS[MSGPACK].encode(Bundle([msgspec.Raw(message) for message in messages]))


def decode(body: bytes | bytearray, *, media_type: str = MSGPACK) -> Message:
    """Return the checked message of a body. Errors: WireError naming the field."""
    codec = _CODECS[media_type]
    # Only a report holds columns; the kind of a large message is checked before it is decoded.
    if len(body) > MAX_NOTICE_BYTES and _decoded(body, codec.kind).kind != "report":
        raise WireError("body", f"a message may have at most {MAX_NOTICE_BYTES} bytes unless it is a report")
    try:
        message: Message = codec.message.decode(body)
    except UNREADABLE as error:
        raise _error_naming_the_key(error, body, codec) from error
    check_message(message)
    return message


def decode_bundle(body: bytes | bytearray, *, media_type: str = MSGPACK) -> list[Message | WireError]:
    """Return the messages of a bundle in order, with the error in place of an invalid message.

    Errors: WireError if the bundle itself cannot be decoded.
    """
    messages: list[msgspec.Raw] = _decoded(body, _CODECS[media_type].bundle).messages
    if len(messages) > MAX_BUNDLE_MESSAGES:
        raise WireError("messages", f"at most {MAX_BUNDLE_MESSAGES} messages in a bundle, got {len(messages)}")
    return [_decode_or_error(bytes(raw), media_type) for raw in messages]


def decode_ack(body: bytes) -> Ack:
    """Return the answer to one message. Errors: WireError."""
    ack: Ack = _decoded(body, _ACK)
    return ack


def decode_acks(body: bytes) -> Acks:
    """Return the answers to a bundle. Errors: WireError."""
    acks: Acks = _decoded(body, _ACKS)
    return acks


def _decode_or_error(body: bytes, media_type: str) -> Message | WireError:
    try:
        return decode(body, media_type=media_type)
    except WireError as error:
        return error


def _error_naming_the_key(error: Exception, body: bytes | bytearray, codec: _Codec) -> WireError:
    """Return the error with the field and, in a mapping, the key, which msgspec does not name."""
    named = wire_error_of(error)
    mapping, any_key, rest = named.field.partition(ANY_KEY)
    if not any_key or mapping not in codec.values:
        return named
    try:
        values: dict[str, msgspec.Raw] = getattr(codec.mappings.decode(body), mapping)
    except UNREADABLE as unreadable:
        return wire_error_of(unreadable)
    for key, raw in values.items():
        try:
            codec.values[mapping].decode(raw)
        except UNREADABLE:
            return WireError(f"{mapping}.{shorten_value(key)}{rest}", named.message)
    return named

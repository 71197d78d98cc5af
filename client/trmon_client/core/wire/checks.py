"""Checks of a decoded message beyond its types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trmon_client.core.wire.errors import WireError, shorten_value
from trmon_client.core.wire.messages import (
    WIRE_MAJOR,
    ChunkCount,
    Finish,
    Heartbeat,
    JsonNumber,
    Message,
    Report,
    Scalars,
    Start,
)

MAX_NAME_LENGTH = 128
MAX_TEXT_LENGTH = 4096
MAX_SCALARS = 256
MAX_TAGS = 64
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
        for n in (*message.losses.dropped.values(), message.losses.spooled_bytes, message.losses.queued):
            _check_whole("losses", n)
        for text in (*message.losses.warnings, *message.losses.warnings.values()):
            _check_text("losses", text)
    match message:
        case Report():
            _check_columns(message)
            _check_name("policy", message.policy, optional=True)
            _check_scalars("scalars", message.scalars)
            _check_chunk_counts(message.finished)
            _check_count("chunks", message.chunks)
            for field in ("trainer_version", "old_version", "semantics"):
                _check_whole(field, getattr(message, field))
        case Scalars():
            _check_scalars("values", message.values)
        case Finish():
            for field in ("reason", "signal", "error", "traceback"):
                _check_text(field, getattr(message, field))
            _check_whole("exit_code", message.exit_code)
            _check_chunk_counts(message.finished)
        case Start():
            _check_start(message)


def _check_origin(message: Message) -> None:
    for field in ("attempt", "launch"):
        _check_name(field, getattr(message, field))
    for field in ("rank", "step", "update", "chunk", "sequence"):
        _check_count(field, getattr(message, field, None))
    if not 0 < message.world_size <= MAX_WORLD_SIZE:
        raise WireError("world_size", f"must be 1 to {MAX_WORLD_SIZE}, got {shorten_value(message.world_size)}")
    if message.rank >= message.world_size:
        raise WireError("rank", f"must be below world_size ({message.world_size}), got {message.rank}")


def _check_columns(report: Report) -> None:
    if report.parcel is None and not report.columns:
        raise WireError("columns", "is required without a parcel")
    if report.parcel is not None and (report.columns or report.histograms):
        raise WireError("parcel", "cannot be combined with columns or histograms")


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

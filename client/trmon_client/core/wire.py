"""The wire format, version 1.0: the messages a trainer sends and the answer it gets.

MessagePack carries columns as little-endian bytes with a dtype each; JSON carries them as arrays, where null is
NaN and "inf", "-inf" are themselves. Unknown fields are ignored; unknown columns are refused unless the sender
is a newer minor version.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS, DType, KlIs, Pair

WIRE_MAJOR = 1
WIRE_MINOR = 0
SEMANTICS_VERSION = 1
"""Raised whenever the same columns and policy could decide differently than before."""

MSGPACK = "application/msgpack"
JSON = "application/json"

MAX_SEQUENCES = 1 << 20
MAX_NAME_LENGTH = 128
MAX_SCALARS = 256


class WireError(ValueError):
    """A message that cannot be accepted: `field` names where, the text says what was expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class PackedColumn(msgspec.Struct, frozen=True):
    """One column as little-endian bytes."""

    dtype: DType
    data: bytes


JsonNumber: TypeAlias = int | float | None | Literal["inf", "-inf", "nan"]
WireColumn: TypeAlias = PackedColumn | list[JsonNumber]


class ChunkCount(msgspec.Struct, frozen=True, array_like=True):
    """How many chunks a finished update of this rank consists of."""

    step: int
    update: int | None
    chunks: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the run, the attempt, the launch of the trainer and its data-parallel rank.

    `launch` is shared by all ranks of one start of the trainer where they can agree on it, else the process' own.
    `sent_at` is the client's clock, seconds since the epoch: information only, the server's clock decides.
    """

    project: str = ""
    run: str = ""
    attempt: str
    launch: str
    rank: int = 0
    world_size: int = 1
    sent_at: float = 0.0
    wire: tuple[int, int] = (WIRE_MAJOR, WIRE_MINOR)


class Losses(msgspec.Struct, frozen=True):
    """What the sender has lost and what waits: counters since the start of the process."""

    dropped: dict[str, int] = {}
    spooled_bytes: int = 0
    queued: int = 0


class Report(Origin, frozen=True, kw_only=True, tag="report", tag_field="kind"):
    """The columns of one chunk of one (step, update) on one rank, and what the client decided with them."""

    step: int
    update: int | None = None
    chunk: int = 0
    columns: dict[str, WireColumn]
    histograms: dict[Pair, WireColumn] = {}
    kl_is: KlIs = "sampled"
    kl_pair: Pair | None = None
    trainer_version: int | None = None
    old_version: int | None = None
    mode: Literal["observe", "enforce"] = "observe"
    policy: str | None = None
    semantics: int = SEMANTICS_VERSION
    accepted: bytes | None = None
    scalars: dict[str, JsonNumber] = {}
    finished: list[ChunkCount] = []
    losses: Losses = Losses()


class Start(Origin, frozen=True, kw_only=True, tag="start", tag_field="kind"):
    """A process of the trainer has begun to speak; `policy` is the spec its author asked for, if any."""

    sequence: int = 0
    config: dict[str, Any] = {}
    owner: str | None = None
    tags: list[str] = []
    mode: Literal["observe", "enforce"] = "observe"
    policy: dict[str, Any] | None = None
    client: str = ""
    ranks_unverified: bool = False
    attempt_is_local: bool = False


class Scalars(Origin, frozen=True, kw_only=True, tag="scalars", tag_field="kind"):
    """Numbers the trainer logs under its own names for a step."""

    sequence: int
    step: int
    values: dict[str, JsonNumber]


class Heartbeat(Origin, frozen=True, kw_only=True, tag="heartbeat", tag_field="kind"):
    """The process lives; never stored."""

    losses: Losses = Losses()


class Pause(Origin, frozen=True, kw_only=True, tag="pause", tag_field="kind"):
    """The trainer will be silent on purpose (evaluation, checkpoint) until its next report."""

    sequence: int
    reason: str = ""


class Finish(Origin, frozen=True, kw_only=True, tag="finish", tag_field="kind"):
    """The process ends: cleanly, or by an exception."""

    sequence: int
    outcome: Literal["finished", "crashed"] = "finished"
    error: str = ""
    finished: list[ChunkCount] = []
    losses: Losses = Losses()


Message: TypeAlias = Report | Start | Scalars | Heartbeat | Pause | Finish


class Bundle(msgspec.Struct, frozen=True):
    """Many messages in one request, of one or several runs, in the order they were made."""

    messages: list[msgspec.Raw]


class PolicyUpdate(msgspec.Struct, frozen=True):
    """The policy the service wants applied from a step on (best effort), its shadows, and its content hash."""

    hash: str
    spec: dict[str, Any]
    shadows: list[dict[str, Any]] = []
    from_step: int = 0


class Ack(msgspec.Struct, frozen=True):
    """The answer to one message, sent after it is on disk.

    `status` is stored or duplicate (both durable), conflict (another payload under the same identity) or invalid;
    `accepted` has one bit a sequence, little-endian bit order; `problem` says what was wrong, naming the field.
    """

    status: Literal["stored", "duplicate", "conflict", "invalid"]
    accepted: bytes | None = None
    policy: PolicyUpdate | None = None
    advice: dict[str, Any] | None = None
    problem: str | None = None


class Acks(msgspec.Struct, frozen=True):
    """The answers to a bundle, in its order."""

    acks: list[Ack]


_MSGPACK_MESSAGE = msgspec.msgpack.Decoder(Message)
_JSON_MESSAGE = msgspec.json.Decoder(Message)
_MSGPACK_BUNDLE = msgspec.msgpack.Decoder(Bundle)
_JSON_BUNDLE = msgspec.json.Decoder(Bundle)
_MSGPACK = msgspec.msgpack.Encoder()
_JSON = msgspec.json.Encoder()


def encode(value: Message | Ack | Acks, *, media_type: str = MSGPACK) -> bytes:
    """Return a message or an answer as bytes of the media type."""
    return (_JSON if media_type == JSON else _MSGPACK).encode(value)


def encode_bundle(messages: list[bytes]) -> bytes:
    """Return already encoded MessagePack messages as one bundle, without decoding them."""
    return _MSGPACK.encode(Bundle([msgspec.Raw(message) for message in messages]))


def decode(body: bytes, *, media_type: str = MSGPACK) -> Message:
    """Return the one message in a body, checked.

    Errors: WireError naming the field.
    """
    decoder = _JSON_MESSAGE if media_type == JSON else _MSGPACK_MESSAGE
    try:
        message = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _as_wire_error(error) from error
    _check(message)
    return message


def decode_bundle(body: bytes, *, media_type: str = MSGPACK) -> list[Message | WireError]:
    """Return the messages of a bundle in order; one that cannot be accepted is returned as its error.

    Errors: WireError when the bundle itself cannot be read.
    """
    decoder = _JSON_BUNDLE if media_type == JSON else _MSGPACK_BUNDLE
    try:
        bundle = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _as_wire_error(error) from error
    return [_decode_or_error(bytes(raw), media_type) for raw in bundle.messages]


def decode_ack(body: bytes) -> Ack:
    """Return the answer to one message. Errors: WireError."""
    return _decode_answer(body, Ack)


def decode_acks(body: bytes) -> Acks:
    """Return the answers to a bundle. Errors: WireError."""
    return _decode_answer(body, Acks)


def pack_columns(columns: Columns) -> dict[str, WireColumn]:
    """Return columns as little-endian bytes with a dtype each; columns must be numpy."""
    return {name: _pack(array, COLUMNS[name].dtype) for name, array in columns.values.items()}


def pack_histograms(columns: Columns) -> dict[Pair, WireColumn]:
    """Return the histograms of d as little-endian bytes; columns must be numpy."""
    return {pair: _pack(counts, "i8") for pair, counts in columns.histograms.items()}


def unpack_columns(report: Report) -> Columns:
    """Return the columns of a report as numpy arrays, checked.

    Errors: WireError naming the column: unknown, wrong dtype, wrong length, or a pair that lacks one.
    """
    newer = report.wire[1] > WIRE_MINOR
    values: dict[str, Any] = {}
    for name, packed in report.columns.items():
        spec = COLUMNS.get(name)
        if spec is not None:
            values[name] = _unpack(f"columns.{name}", packed, spec.dtype)
        elif not newer:
            raise WireError(f"columns.{name[:64]}", "unknown column; this service knows wire version 1.0")
    _check_columns(values)
    return Columns(
        values=values,
        histograms={pair: _unpack_histogram(pair, packed) for pair, packed in report.histograms.items()},
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )


def pack_bits(accepted: Any) -> bytes:
    """Return booleans [B] as bits, little-endian bit order."""
    return np.packbits(np.asarray(accepted, dtype=bool), bitorder="little").tobytes()


def unpack_bits(bits: bytes, n: int) -> Any:
    """Return the first n bits as booleans [n]."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=n).astype(bool)


def number(value: JsonNumber) -> float:
    """Return a wire number as a float: null is NaN."""
    return math.nan if value is None else float(value)


def _decode_answer(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise _as_wire_error(error) from error


def _decode_or_error(body: bytes, media_type: str) -> Message | WireError:
    try:
        return decode(body, media_type=media_type)
    except WireError as error:
        return error


def _as_wire_error(error: Exception) -> WireError:
    text = str(error)
    message, _, path = text.partition(" - at `$")
    return WireError(path.rstrip("`").lstrip(".") or "body", message)


def _check(message: Message) -> None:
    if message.wire[0] != WIRE_MAJOR:
        raise WireError(
            "wire", f"version {message.wire[0]}.{message.wire[1]} is not supported; supported: 1.0 to 1.x"
        )
    for name in ("attempt", "launch"):
        if not 0 < len(getattr(message, name)) <= MAX_NAME_LENGTH:
            raise WireError(name, f"must have 1 to {MAX_NAME_LENGTH} characters")
    for name in ("rank", "step", "update", "chunk", "sequence"):
        value = getattr(message, name, None)
        if value is not None and not 0 <= value < 1 << 62:
            raise WireError(name, f"must be zero or more, and is {value}")
    if not message.rank < message.world_size:
        raise WireError("rank", f"must be below world_size ({message.world_size}), and is {message.rank}")
    if isinstance(message, Report):
        _check_scalars("scalars", message.scalars)
    elif isinstance(message, Scalars):
        _check_scalars("values", message.values)


def _check_scalars(field: str, scalars: dict[str, JsonNumber]) -> None:
    if len(scalars) > MAX_SCALARS:
        raise WireError(field, f"at most {MAX_SCALARS} scalars a step, and has {len(scalars)}")
    for name in scalars:
        if not 0 < len(name) <= MAX_NAME_LENGTH:
            raise WireError(field, f"a scalar's name must have 1 to {MAX_NAME_LENGTH} characters")


def _check_columns(values: dict[str, Any]) -> None:
    for name in ("n_tokens", "n_invalid"):
        if name not in values:
            raise WireError(f"columns.{name}", "is required")
    n = len(values["n_tokens"])
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"at most {MAX_SEQUENCES} sequences a report, and has {n}")
    for name, array in values.items():
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        if name.startswith("n_") and (array < 0).any():
            raise WireError(f"columns.{name}", "counts must be zero or more")
    pairs = [pair for pair in PAIRS if f"{pair}_sum_d" in values]
    if not pairs:
        raise WireError("columns", "no pair: mismatch_, staleness_ or total_ columns are needed")
    for pair in pairs:
        for stem in PAIR_STEMS:
            if f"{pair}_{stem}" not in values:
                raise WireError(f"columns.{pair}_{stem}", f"is required beside {pair}_sum_d")


def _pack(array: Any, dtype: DType) -> PackedColumn:
    return PackedColumn(dtype, np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes())


def _unpack(field: str, packed: WireColumn, dtype: DType) -> Any:
    if isinstance(packed, PackedColumn):
        if packed.dtype != dtype:
            raise WireError(field, f"dtype must be {dtype}, and is {packed.dtype}")
        if len(packed.data) % int(dtype[1]):
            raise WireError(field, f"{len(packed.data)} bytes are not a whole number of {dtype}")
        return np.frombuffer(packed.data, f"<{dtype}")
    if dtype != "i8":
        return np.array([number(value) for value in packed], dtype=f"<{dtype}")
    whole = [value for value in packed if isinstance(value, int) and -(1 << 63) <= value < 1 << 63]
    if len(whole) != len(packed):
        raise WireError(field, "must be whole numbers of 64 bits")
    return np.array(whole, dtype="<i8")


def _unpack_histogram(pair: Pair, packed: WireColumn) -> Any:
    counts = _unpack(f"histograms.{pair}", packed, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, and has {len(counts)}")
    if (counts < 0).any():
        raise WireError(f"histograms.{pair}", "counts must be zero or more")
    return counts

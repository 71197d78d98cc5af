"""The stored form of a report: what it says, and its columns byte-shuffled and compressed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, TypeVar

import msgspec
from zstandard import ZstdError, frame_content_size

from trmon.domain.model.errors import Damaged
from trmon_client.core import wire
from trmon_client.core.arrays.dtypes import REMEMBERED_LAYOUTS, DType
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.wire.compression import compress, decompress_frame

T = TypeVar("T")

FORMAT = 2
DIGEST_BYTES = 16
MAX_LAYOUT_BYTES = 1 << 20
_LOCKED_BYTES = 2047
"""For more, hashlib lets go of the interpreter's lock, and to get it back from the writer takes longer than to hash."""


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """`report` says all but the columns, `layout` is a _Layout, compressed, `body` the data of a parcel."""

    format: int
    n_sequences: int
    report: bytes
    layout: bytes
    body: bytes


class _Layout(msgspec.Struct, frozen=True, array_like=True):
    """What a parcel says of the columns and histograms that the body holds: the same in all reports of a run."""

    names: dict[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]


_PAYLOAD = msgspec.msgpack.Decoder(_Payload)
_REPORT = msgspec.msgpack.Decoder(wire.Report)
_LAYOUT = msgspec.msgpack.Decoder(_Layout)
_NOTICE: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire.Start | wire.Scalars | wire.Pause | wire.Finish)


def pack_report(report: wire.Report, *, parcel: wire.PackedColumns) -> bytes:
    """Return the stored form of a report without columns, with the parcel that holds them.

    Nothing is lost: `unpack` gives back the same bits. Callers pack before they queue, so that the writer need not.
    """
    layout = _packed_layout(_layout_of(parcel))
    said = msgspec.msgpack.encode(report)
    return msgspec.msgpack.encode(_Payload(FORMAT, parcel.n_sequences, said, layout, parcel.data))


def unpack_report(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a call that decodes them.

    Errors: Damaged, also from the call, if it cannot be decoded or a service of another format wrote it.
    """
    packed = _opened(payload)
    report = _decoded(_REPORT, packed.report)
    return report, lambda: _columns(report, packed)


def pack_notice(message: wire.Start | wire.Scalars | wire.Pause | wire.Finish) -> bytes:
    """Return the stored form of a message that has no columns."""
    return wire.encode(message)


def unpack_notice(payload: bytes) -> wire.Start | wire.Scalars | wire.Pause | wire.Finish:
    """Return a stored message that has no columns. Errors: Damaged."""
    try:
        message: wire.Start | wire.Scalars | wire.Pause | wire.Finish = _NOTICE.decode(payload)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"a stored notice is damaged: {error}") from error
    return message


def message_digest(message: wire.Message) -> bytes:
    """Return 16 bytes over what a message without columns says: not when it was sent, or what its sender lost."""
    return blake2b(_said(message), digest_size=DIGEST_BYTES).digest()


def report_digest(report: wire.Report, *, parcel: wire.PackedColumns) -> bytes:
    """Return 16 bytes over what a report without columns says, as of `digest`, and over its columns as they are stored.

    The same report has the same digest in every encoding, but not from every version of the service: where digests
    differ, `is_same` knows.
    """
    said = sha256(_said(report))
    said.update(_layout_of(parcel))
    numbers = memoryview(parcel.data)
    for start in range(0, len(numbers), _LOCKED_BYTES):
        said.update(numbers[start : start + _LOCKED_BYTES])
    return said.digest()[:DIGEST_BYTES]


def is_same_report(payload: bytes, other: bytes) -> bool:
    """Whether two stored reports say the same, whatever packed them; a damaged one says nothing that is known."""
    try:
        return _content(payload) == _content(other)
    except Damaged:
        return False


def _content(payload: bytes) -> tuple[bytes, _Layout, bytes]:
    packed = _opened(payload)
    said, layout = _said(_decoded(_REPORT, packed.report)), _layout_in(packed)
    try:
        return said, layout, decompress_frame(packed.body)
    except ZstdError as error:
        raise _damaged(error) from error


def _said(message: wire.Message) -> bytes:
    """A report that leaves the decision to the service says nothing by the policy that it knows."""
    neutral: dict[str, Any] = {"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, wire.WIRE_MINOR)}
    if isinstance(message, wire.Report | wire.Finish):
        neutral["losses"] = wire.Losses()
    if isinstance(message, wire.Report) and message.accepted is None:
        neutral["policy"] = None
    return msgspec.msgpack.encode(msgspec.structs.replace(message, **neutral))


def _opened(payload: bytes) -> _Payload:
    packed = _decoded(_PAYLOAD, payload)
    if packed.format != FORMAT:
        raise Damaged(
            f"a stored report has format {packed.format}, this one reads {FORMAT}; use the service that wrote it"
        )
    return packed


def _columns(report: wire.Report, packed: _Payload) -> Columns:
    layout = _layout_in(packed)
    parcel = wire.PackedColumns(packed.n_sequences, layout.names, layout.pairs, packed.body)
    try:
        return wire.columns_of_packed(report, parcel)
    except (ArithmeticError, LookupError, TypeError, ValueError, ZstdError) as error:
        raise _damaged(error) from error


def _layout_in(packed: _Payload) -> _Layout:
    try:
        return _unpacked_layout(packed.layout)
    except (msgspec.MsgspecError, ValueError, ZstdError) as error:
        raise _damaged(error) from error


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> Damaged:
    return Damaged(f"a stored report is damaged: {error}")


def _layout_of(parcel: wire.PackedColumns) -> bytes:
    return msgspec.msgpack.encode(_Layout(parcel.names, parcel.pairs))


# Remembered, as all reports of a run have the same columns: their names take as long to pack as their numbers.


@lru_cache(REMEMBERED_LAYOUTS)
def _packed_layout(layout: bytes) -> bytes:
    return compress(layout)


@lru_cache(REMEMBERED_LAYOUTS)
def _unpacked_layout(packed: bytes) -> _Layout:
    # A damaged head may state any size, which would be allocated before anything is read.
    if not 0 <= frame_content_size(packed) <= MAX_LAYOUT_BYTES:
        raise ZstdError("the frame of the layout states a size that no layout has")
    return _LAYOUT.decode(decompress_frame(packed))

"""The stored form of a report: what it says, and its columns byte-shuffled and compressed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any

import msgspec

from trmon.domain.errors import TrmonError
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.compression import compressed, decompressed
from trmon_client.core.schema import REMEMBERED_LAYOUTS, DType, Pair

FORMAT = 2
DIGEST_BYTES = 16
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


def pack(report: wire.Report, *, parcel: wire.Parcel) -> bytes:
    """Return the stored form of a report without columns, with the parcel that holds them.

    Nothing is lost: `unpack` gives back the same bits. Callers pack before they queue, so that the writer need not.
    """
    layout = _packed_layout(_layout_of(parcel))
    said = msgspec.msgpack.encode(report)
    return msgspec.msgpack.encode(_Payload(FORMAT, parcel.n_sequences, said, layout, parcel.data))


def unpack(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a call that decodes them.

    Errors: TrmonError if a service of another format wrote it or, from the call, if it is damaged.
    """
    packed = _opened(payload)
    report = _REPORT.decode(packed.report)
    return report, lambda: _columns(report, packed)


def pack_notice(message: wire.Start | wire.Scalars | wire.Pause | wire.Finish) -> bytes:
    """Return the stored form of a message that has no columns."""
    return wire.encode(message)


def digest(message: wire.Message) -> bytes:
    """Return 16 bytes over what a message without columns says: not when it was sent, or what its sender lost."""
    return blake2b(_said(message), digest_size=DIGEST_BYTES).digest()


def report_digest(report: wire.Report, *, parcel: wire.Parcel) -> bytes:
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


def is_same(payload: bytes, other: bytes) -> bool:
    """Whether two stored reports say the same, whatever packed them. Errors: as of `unpack`."""
    return _content(payload) == _content(other)


def _content(payload: bytes) -> tuple[bytes, _Layout, bytes]:
    packed = _opened(payload)
    return _said(_REPORT.decode(packed.report)), _unpacked_layout(packed.layout), decompressed(packed.body)


def _said(message: wire.Message) -> bytes:
    """A report that leaves the decision to the service says nothing by the policy that it knows."""
    neutral: dict[str, Any] = {"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, wire.WIRE_MINOR)}
    if isinstance(message, wire.Report | wire.Finish):
        neutral["losses"] = wire.Losses()
    if isinstance(message, wire.Report) and message.accepted is None:
        neutral["policy"] = None
    return msgspec.msgpack.encode(msgspec.structs.replace(message, **neutral))


def _opened(payload: bytes) -> _Payload:
    packed = _PAYLOAD.decode(payload)
    if packed.format != FORMAT:
        raise TrmonError(
            f"a stored report has format {packed.format}, this one reads {FORMAT}; use the service that wrote it"
        )
    return packed


def _columns(report: wire.Report, packed: _Payload) -> Columns:
    layout = _unpacked_layout(packed.layout)
    parcel = wire.Parcel(packed.n_sequences, layout.names, layout.pairs, packed.body)
    try:
        return wire.columns_of(report, parcel)
    except wire.WireError as error:
        raise TrmonError(f"a stored report is damaged: {error}") from error


def _layout_of(parcel: wire.Parcel) -> bytes:
    return msgspec.msgpack.encode(_Layout(parcel.names, parcel.pairs))


# Remembered, as all reports of a run have the same columns: their names take as long to pack as their numbers.


@lru_cache(REMEMBERED_LAYOUTS)
def _packed_layout(layout: bytes) -> bytes:
    return compressed(layout)


@lru_cache(REMEMBERED_LAYOUTS)
def _unpacked_layout(packed: bytes) -> _Layout:
    return _LAYOUT.decode(decompressed(packed))

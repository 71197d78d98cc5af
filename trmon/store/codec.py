"""The stored form of a report: its header, and its columns byte-shuffled and compressed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Any

import msgspec

from trmon.domain.errors import TrmonError
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.compression import compressed, decompressed
from trmon_client.core.schema import DType, Pair

FORMAT = 1
DIGEST_BYTES = 16


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """`header` is a _Header, compressed, `body` the data of a parcel."""

    format: int
    n_sequences: int
    header: bytes
    body: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """The report without columns, and what the parcel says of those that the body holds."""

    report: wire.Report
    names: dict[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]


_PAYLOAD = msgspec.msgpack.Decoder(_Payload)
_HEADER = msgspec.msgpack.Decoder(_Header)


def pack(report: wire.Report, *, parcel: wire.Parcel) -> bytes:
    """Return the stored form of a report without columns, with the parcel that holds them.

    Nothing is lost: `unpack` gives back the same bits. Callers pack before they queue, so that the writer need not.
    """
    packed_header = compressed(msgspec.msgpack.encode(_Header(report, parcel.names, parcel.pairs)))
    return msgspec.msgpack.encode(_Payload(FORMAT, parcel.n_sequences, packed_header, parcel.data))


def unpack(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a call that decodes them.

    Errors: TrmonError if a newer service wrote it or, from the call, if it is damaged.
    """
    packed, header = _opened(payload)
    return header.report, lambda: _columns(header, packed)


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
    said.update(msgspec.msgpack.encode((parcel.names, parcel.pairs)))
    said.update(parcel.data)
    return said.digest()[:DIGEST_BYTES]


def is_same(payload: bytes, other: bytes) -> bool:
    """Whether two stored reports say the same, whatever packed them. Errors: as of `unpack`."""
    return _content(payload) == _content(other)


def _content(payload: bytes) -> tuple[bytes, bytes]:
    packed, header = _opened(payload)
    said = msgspec.msgpack.encode((_said(header.report), header.names, header.pairs))
    return said, decompressed(packed.body)


def _said(message: wire.Message) -> bytes:
    """A report that leaves the decision to the service says nothing by the policy that it knows."""
    neutral: dict[str, Any] = {"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, wire.WIRE_MINOR)}
    if isinstance(message, wire.Report | wire.Finish):
        neutral["losses"] = wire.Losses()
    if isinstance(message, wire.Report) and message.accepted is None:
        neutral["policy"] = None
    return msgspec.msgpack.encode(msgspec.structs.replace(message, **neutral))


def _opened(payload: bytes) -> tuple[_Payload, _Header]:
    packed = _PAYLOAD.decode(payload)
    if packed.format != FORMAT:
        raise TrmonError(f"a stored report has format {packed.format}, this service reads {FORMAT}; upgrade it")
    return packed, _HEADER.decode(decompressed(packed.header))


def _columns(header: _Header, packed: _Payload) -> Columns:
    parcel = wire.Parcel(packed.n_sequences, header.names, header.pairs, packed.body)
    try:
        return wire.columns_of(header.report, parcel)
    except wire.WireError as error:
        raise TrmonError(f"a stored report is damaged: {error}") from error

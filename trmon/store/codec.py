"""The stored form of a report: its header, and its columns byte-shuffled and compressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any

import msgspec

from trmon.domain.errors import TrmonError
from trmon.store.compression import compressed, compressed_noise, decompressed, shuffled, unshuffled
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.schema import N_BINS, DType, Pair

FORMAT = 1
DIGEST_BYTES = 16


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """`header` is a _Header, compressed, `body` that of a Body."""

    format: int
    n_sequences: int
    header: bytes
    body: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """The report without columns, and which columns and histograms the body holds, in its order."""

    report: wire.Report
    names: Mapping[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The columns of a report as they are stored: the same data is the same bytes, as long as the same zstd packs it.

    `packed` holds the numbers of each dtype, whose rows `names` says, then the histograms of `pairs`: byte-shuffled and
    compressed.
    """

    n_sequences: int
    names: Mapping[DType, tuple[str, ...]]
    pairs: tuple[Pair, ...]
    packed: bytes

    @classmethod
    def of(cls, blocks: wire.Blocks) -> Body:
        """Return columns as they are stored."""
        planes = [shuffled(rows, int(dtype[1])) for dtype, rows in blocks.rows.items()]
        packed = compressed_noise(b"".join([*planes, shuffled(blocks.histograms, 8)]))
        return cls(blocks.n_sequences, blocks.names, blocks.pairs, packed)


_PAYLOAD = msgspec.msgpack.Decoder(_Payload)
_HEADER = msgspec.msgpack.Decoder(_Header)


def pack(report: wire.Report, *, body: Body) -> bytes:
    """Return the stored form of a report with its columns.

    Nothing is lost: `unpack` gives back the same bits. Callers pack before they queue, so that the writer need not.
    """
    header = _Header(msgspec.structs.replace(report, columns={}, histograms={}), body.names, body.pairs)
    packed_header = compressed(msgspec.msgpack.encode(header))
    return msgspec.msgpack.encode(_Payload(FORMAT, body.n_sequences, packed_header, body.packed))


def unpack(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a call that decodes them.

    Errors: TrmonError if a newer service wrote it.
    """
    packed, header = _opened(payload)
    return header.report, lambda: _columns(header, packed)


def pack_notice(message: wire.Start | wire.Scalars | wire.Pause | wire.Finish) -> bytes:
    """Return the stored form of a message that has no columns."""
    return wire.encode(message)


def digest(message: wire.Message) -> bytes:
    """Return 16 bytes over what a message without columns says: not when it was sent, or what its sender lost."""
    return blake2b(_said(message), digest_size=DIGEST_BYTES).digest()


def report_digest(report: wire.Report, *, body: Body) -> bytes:
    """Return 16 bytes over what a report says, as of `digest`, and over its columns as they are stored.

    The same report has the same digest in every encoding, but not from every version of the service: where digests
    differ, `is_same` knows.
    """
    said = sha256(_said(msgspec.structs.replace(report, columns={}, histograms={})))
    said.update(msgspec.msgpack.encode((body.names, body.pairs)))
    said.update(body.packed)
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
    body = decompressed(packed.body)
    values: dict[str, Any] = {}
    offset = 0
    for dtype, names in header.names.items():
        arrays = unshuffled(body, offset=offset, dtype=dtype, shape=(len(names), packed.n_sequences))
        values.update(zip(names, arrays, strict=True))
        offset += arrays.nbytes
    histograms = unshuffled(body, offset=offset, dtype="i8", shape=(len(header.pairs), N_BINS))
    report = header.report
    return Columns(
        by_name=values,
        histograms=dict(zip(header.pairs, histograms, strict=True)),
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )

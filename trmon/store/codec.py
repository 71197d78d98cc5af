"""The stored form of a report: its header, and its columns byte-shuffled and compressed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from trmon.domain.errors import TrmonError
from trmon.store.compression import compressed, decompressed, shuffled, unshuffled
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, N_BINS, DType, Pair

FORMAT = 1
DIGEST_BYTES = 16
_DTYPES: tuple[DType, ...] = ("f8", "f4", "i8")


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    """`header` is a _Header, `body` the shuffled bytes, both compressed."""

    format: int
    n_sequences: int
    header: bytes
    body: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """The report without columns, and which columns and histograms the body holds, in its order."""

    report: wire.Report
    names: dict[DType, list[str]]
    pairs: list[Pair]


_PAYLOAD = msgspec.msgpack.Decoder(_Payload)
_HEADER = msgspec.msgpack.Decoder(_Header)


def pack(report: wire.Report, *, columns: Columns | None = None) -> bytes:
    """Return the stored form of a report; `columns` are its own, if the caller has unpacked them already.

    Nothing is lost: `unpack` gives back the same bits. Callers pack before they queue, so that the writer need not.
    Errors: WireError from unpacking the columns.
    """
    columns = wire.unpack_columns(report) if columns is None else columns
    names = {dtype: [name for name in columns if COLUMNS[name].dtype == dtype] for dtype in _DTYPES}
    pairs = list(columns.histograms)
    header = _Header(msgspec.structs.replace(report, columns={}, histograms={}), names, pairs)
    planes = [shuffled([columns[name] for name in group], dtype) for dtype, group in names.items()]
    body = b"".join([*planes, shuffled(list(columns.histograms.values()), "i8")])
    packed_header = compressed(msgspec.msgpack.encode(header))
    return msgspec.msgpack.encode(_Payload(FORMAT, columns.n_sequences, packed_header, compressed(body)))


def unpack(payload: bytes) -> tuple[wire.Report, Callable[[], Columns]]:
    """Return a stored report without its columns, and a call that decodes them.

    Errors: TrmonError if a newer service wrote it.
    """
    packed = _PAYLOAD.decode(payload)
    if packed.format != FORMAT:
        raise TrmonError(f"a stored report has format {packed.format}, this service reads {FORMAT}; upgrade it")
    header = _HEADER.decode(decompressed(packed.header))
    return header.report, lambda: _columns(header, packed)


def pack_notice(message: wire.Start | wire.Scalars | wire.Pause | wire.Finish) -> bytes:
    """Return the stored form of a message that has no columns."""
    return wire.encode(message)


def digest(message: wire.Message, *, columns: Columns | None = None) -> bytes:
    """Return 16 bytes over what a message says: not when it was sent, in which encoding, or what its sender lost.

    Args: columns: a report's own, unpacked; needed for reports only.
    """
    neutral: dict[str, Any] = {"sent_at": 0.0, "wire": (wire.WIRE_MAJOR, wire.WIRE_MINOR)}
    if isinstance(message, wire.Report | wire.Finish):
        neutral["losses"] = wire.Losses()
    if isinstance(message, wire.Report):
        neutral |= {"columns": {}, "histograms": {}}
    said = blake2b(msgspec.msgpack.encode(msgspec.structs.replace(message, **neutral)), digest_size=DIGEST_BYTES)
    arrays: dict[str, Any] = {}
    if columns is not None:
        arrays = dict(columns) | {f"histogram {pair}": counts for pair, counts in columns.histograms.items()}
    for name in sorted(arrays):
        # Array by array: above 2 KiB hashing lets go of the interpreter, which costs more to have back than to hash.
        said.update(name.encode())
        said.update(np.ascontiguousarray(arrays[name]).data)
    return said.digest()


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

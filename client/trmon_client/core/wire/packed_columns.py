"""Packs all columns of a report into one compressed block, in the form in which the service stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import local
from typing import Any

import msgspec
import numpy as np
import zstandard

from trmon_client.core.arrays import DType, RowMatrix
from trmon_client.core.column_schema import COLUMNS, N_BINS, ColumnSpec, Pair
from trmon_client.core.columns import Columns
from trmon_client.core.wire.messages import PackedColumns, WireError, shorten_value

DTYPES: tuple[DType, ...] = ("f8", "f4", "i8")
"""The order of the dtypes in packed columns."""
FLOATS: tuple[DType, ...] = ("f8", "f4")
_ODD_TOP_BYTES = b"\x7f\x80\xff"
"""The top bytes of all NaNs and of -0.0, which few other floats have."""


def names_by_dtype(names: Iterable[str], specs: Mapping[str, ColumnSpec]) -> dict[DType, tuple[str, ...]]:
    """Return the names of the columns of each dtype, sorted: the order of their rows."""
    return {dtype: tuple(sorted(name for name in names if specs[name].dtype == dtype)) for dtype in DTYPES}


def canonical_numbers(rows: bytes, dtype: DType) -> bytes:
    """Return little-endian numbers with a single bit pattern for NaN and for zero."""
    if dtype not in FLOATS or not may_be_odd(top_bytes(rows, dtype)):
        return rows
    numbers = np.frombuffer(rows, f"<{dtype}").copy()
    numbers[np.isnan(numbers)] = np.nan
    numbers[numbers == 0] = 0.0
    return numbers.tobytes()


def top_bytes(rows: bytes, dtype: DType) -> bytes:
    """Return the byte with the sign of each number."""
    size = int(dtype[1])
    return rows[size - 1 :: size]


def may_be_odd(tops: bytes) -> bool:
    """Return whether floats with these top bytes can have other NaNs or zeros; a quick test before the full one."""
    return any(odd in tops for odd in _ODD_TOP_BYTES)


LEVEL = 3
NOISE_LEVEL = -1
"""The level for columns, which are mostly mantissa noise: 40% of the time at no more than 0.5% of the raw size."""
MAX_NOISE_BYTES = 1 << 18
"""Above this size level 3 finds distant repetitions, which saves 3% of the raw size."""


def byte_shuffle(numbers: bytes, size: int) -> bytes:
    """Return numbers of `size` bytes each as planes: all first bytes, then all second bytes."""
    return b"".join([numbers[i::size] for i in range(size)])


def byte_unshuffle(data: bytes, *, dtype: DType, shape: tuple[int, int], offset: int = 0) -> Any:
    """Return the numbers [rows, n] whose planes start at the offset."""
    size = int(dtype[1])
    planes = np.frombuffer(data, np.uint8, shape[0] * shape[1] * size, offset).reshape(size, -1)
    return np.ascontiguousarray(planes.T).view(f"<{dtype}").reshape(shape)


def compress(data: bytes) -> bytes:
    """Return data as one zstd frame with a checksum."""
    return _contexts.compressor.compress(data)


def decompress_frame(data: bytes, *, n_bytes: int | None = None) -> bytes:
    """Return the decompressed data of a frame.

    Args: n_bytes: the expected size; a frame of another size is rejected before it is decompressed.
    Errors: zstandard.ZstdError if the frame is damaged or has another size.
    """
    if n_bytes is not None and zstandard.frame_content_size(data) != n_bytes:
        raise zstandard.ZstdError(f"frame does not hold {n_bytes} bytes")
    return _contexts.decompressor.decompress(data, allow_extra_data=False)


class _Contexts(local):
    """The zstd contexts of a thread: creating one takes longer than most frames, and sharing one is not safe."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self.noise = zstandard.ZstdCompressor(level=NOISE_LEVEL, write_checksum=True)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


MAX_SEQUENCES = 1 << 20
_BYTE_WEIGHTS = 1 << np.arange(0, 64, 8, dtype=np.uint64)
"""The weight of each byte of an integer."""


class DTypeSection(msgspec.Struct, frozen=True, eq=False):
    """The numbers of one dtype in unpacked data, [rows, n]: all first bytes, then all second bytes."""

    data: bytes
    dtype: DType
    shape: tuple[int, int]
    offset: int

    @property
    def n_numbers(self) -> int:
        """The number of elements."""
        return self.shape[0] * self.shape[1]

    @property
    def end(self) -> int:
        """The offset of the next section."""
        return self.offset + self.n_numbers * int(self.dtype[1])

    def fits(self, rows: Sequence[int], *, n_bytes: int) -> bool:
        """Return whether the integers of these rows are >= 0 and fit in `n_bytes` bytes."""
        n_above = int(self.dtype[1]) - n_bytes
        above = np.frombuffer(self.data, np.uint8, n_above * self.n_numbers, self.offset + n_bytes * self.n_numbers)
        # Test all rows first, because selecting rows takes longer and is seldom needed.
        return not above.any() or not above.reshape(n_above, *self.shape)[:, list(rows)].any()

    @property
    def top_bytes(self) -> bytes:
        """The byte with the sign of each number."""
        return self.data[self.end - self.n_numbers : self.end]

    def numbers(self) -> Any:
        """Return the numbers as an array [rows, n]."""
        return byte_unshuffle(self.data, dtype=self.dtype, shape=self.shape, offset=self.offset)

    def total(self, i: int) -> int:
        """Return the sum of one row of integers >= 0."""
        n, size = self.shape[1], int(self.dtype[1])
        planes = np.frombuffer(self.data, np.uint8, self.n_numbers * size, self.offset).reshape(size, -1)
        return int(planes[:, i * n : (i + 1) * n].sum(axis=1) @ _BYTE_WEIGHTS[:size])


class UnpackedColumns(msgspec.Struct, frozen=True, eq=False):
    """Opened packed columns: a section for each dtype, and the histograms."""

    parcel: PackedColumns
    columns: Mapping[DType, DTypeSection]
    histograms: DTypeSection

    @property
    def n_tokens(self) -> int:
        """The number of valid tokens of all sequences."""
        return self.columns["i8"].total(self.parcel.names["i8"].index("n_tokens"))

    def by_name(self) -> RowMatrix:
        """Return the columns as arrays [B]."""
        return RowMatrix(
            tuple(section.numbers() for section in self.columns.values()),
            tuple(self.parcel.names.get(dtype, ()) for dtype in self.columns),
        )

    def histograms_by_pair(self) -> dict[Pair, Any]:
        """Return the histograms as arrays [N_BINS]."""
        return dict(zip(self.parcel.pairs, self.histograms.numbers(), strict=True))


def pack_columns(columns: Columns) -> PackedColumns:
    """Return numpy columns packed in canonical form, as the service stores them."""
    return pack_table(columns, COLUMNS, n_rows=columns.n_sequences, histograms=columns.histograms)


def pack_table(
    columns: Mapping[str, Any], specs: Mapping[str, ColumnSpec], *, n_rows: int, histograms: Mapping[Pair, Any]
) -> PackedColumns:
    """Return numpy columns, [n_rows] each, and histograms packed in canonical form.

    Equal numbers give equal bytes with the same version of zstd.
    """
    names, pairs = names_by_dtype(columns, specs), tuple(sorted(histograms))
    planes = [_canonical_planes([columns[name] for name in names[dtype]], dtype) for dtype in DTYPES]
    data = b"".join([*planes, _canonical_planes([histograms[pair] for pair in pairs], "i8")])
    compressor = _contexts.noise if len(data) <= MAX_NOISE_BYTES else _contexts.compressor
    return PackedColumns(n_rows, names, pairs, compressor.compress(data))


def _canonical_planes(arrays: Sequence[Any], dtype: DType) -> bytes:
    """Return arrays of equal length as planes of canonical little-endian numbers."""
    return byte_shuffle(canonical_numbers(np.array(arrays, f"<{dtype}").tobytes(), dtype), int(dtype[1]))


def open_packed_columns(parcel: PackedColumns) -> UnpackedColumns:
    """Return decompressed columns, with their numbers unchecked. Errors: WireError naming the invalid field."""
    n = parcel.n_sequences
    if not 0 <= n <= MAX_SEQUENCES:
        raise WireError("parcel.n_sequences", f"must be 0 to {MAX_SEQUENCES}, got {shorten_value(n)}")
    try:
        data = decompress_frame(parcel.data, n_bytes=parcel.n_bytes)
    except zstandard.ZstdError as error:
        expected = f"the {parcel.n_bytes} bytes implied by names, pairs and n_sequences"
        raise WireError("parcel.data", f"is not one zstd frame of {expected}: {error}") from error
    columns: dict[DType, DTypeSection] = {}
    offset = 0
    for dtype in DTYPES:
        columns[dtype] = DTypeSection(data, dtype, (len(parcel.names.get(dtype, ())), n), offset)
        offset = columns[dtype].end
    return UnpackedColumns(parcel, columns, DTypeSection(data, "i8", (len(parcel.pairs), N_BINS), offset))


def pack_bits(accepted: Any) -> bytes:
    """Return booleans [B] as bits in little-endian bit order."""
    return np.packbits(np.asarray(accepted, dtype=bool), bitorder="little").tobytes()


def unpack_bits(bits: bytes, n: int) -> Any:
    """Return the first n bits as booleans [n]."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=n).astype(bool)

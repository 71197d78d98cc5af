"""Packs all columns of a report into one compressed block, in the form in which the service stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import zstandard

from trmon_client.core.arrays.dtypes import DType
from trmon_client.core.arrays.row_matrix import RowMatrix
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, N_BINS, Pair
from trmon_client.core.wire.column_blocks import DTYPES, ColumnBlocks, canonical_numbers
from trmon_client.core.wire.compression import byte_shuffle, byte_unshuffle, compress_noise, decompress_frame
from trmon_client.core.wire.errors import WireError, shorten_value
from trmon_client.core.wire.messages import PackedColumns

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
    names = {dtype: tuple(sorted(name for name in columns if COLUMNS[name].dtype == dtype)) for dtype in DTYPES}
    rows = {dtype: _rows([columns[name] for name in group], dtype) for dtype, group in names.items()}
    pairs = tuple(sorted(columns.histograms))
    histograms = _rows([columns.histograms[pair] for pair in pairs], "i8")
    return pack_blocks(ColumnBlocks(columns.n_sequences, names, rows, pairs, histograms))


def pack_blocks(blocks: ColumnBlocks) -> PackedColumns:
    """Return blocks packed; equal numbers give equal bytes with the same version of zstd."""
    planes = [byte_shuffle(blocks.rows[dtype], int(dtype[1])) for dtype in DTYPES]
    data = compress_noise(b"".join([*planes, byte_shuffle(blocks.histograms, 8)]))
    return PackedColumns(blocks.n_sequences, dict(blocks.names), blocks.pairs, data)


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


def _rows(arrays: Sequence[Any], dtype: DType) -> bytes:
    return canonical_numbers(np.array(arrays, f"<{dtype}").tobytes(), dtype)

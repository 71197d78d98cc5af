"""Parcels: all columns of a report in one piece, packed by its sender as they will lie on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import zstandard

from trmon_client.core.arrays.dtypes import DType
from trmon_client.core.arrays.row_matrix import Rows
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, N_BINS, Pair
from trmon_client.core.wire.column_blocks import DTYPES, Blocks, canonical
from trmon_client.core.wire.compression import compressed_noise, decompressed, shuffled, unshuffled
from trmon_client.core.wire.errors import WireError, shown
from trmon_client.core.wire.messages import Parcel

MAX_SEQUENCES = 1 << 20
_WORTH = 1 << np.arange(0, 64, 8, dtype=np.uint64)
"""What each byte of a number counts for."""


class Section(msgspec.Struct, frozen=True, eq=False):
    """Numbers of one dtype in an opened parcel, [rows, n]: all their first bytes, then all second ones."""

    data: bytes
    dtype: DType
    shape: tuple[int, int]
    offset: int

    @property
    def n_numbers(self) -> int:
        """How many they are."""
        return self.shape[0] * self.shape[1]

    @property
    def end(self) -> int:
        """Where the next section begins."""
        return self.offset + self.n_numbers * int(self.dtype[1])

    def fits(self, rows: Sequence[int], *, n_bytes: int) -> bool:
        """Return whether whole numbers of these rows are zero or more, and take so many bytes at most."""
        n_above = int(self.dtype[1]) - n_bytes
        above = np.frombuffer(self.data, np.uint8, n_above * self.n_numbers, self.offset + n_bytes * self.n_numbers)
        # Of all rows at once: to pick some of them takes longer, and is seldom needed.
        return not above.any() or not above.reshape(n_above, *self.shape)[:, list(rows)].any()

    @property
    def top_bytes(self) -> bytes:
        """Of each number the byte with the sign."""
        return self.data[self.end - self.n_numbers : self.end]

    def numbers(self) -> Any:
        """Return them as an array."""
        return unshuffled(self.data, dtype=self.dtype, shape=self.shape, offset=self.offset)

    def total(self, i: int) -> int:
        """Return the sum of one row of whole numbers, none below zero."""
        n, size = self.shape[1], int(self.dtype[1])
        planes = np.frombuffer(self.data, np.uint8, self.n_numbers * size, self.offset).reshape(size, -1)
        return int(planes[:, i * n : (i + 1) * n].sum(axis=1) @ _WORTH[:size])


class Opened(msgspec.Struct, frozen=True, eq=False):
    """What is in a parcel: its columns, a section a dtype, and its histograms."""

    parcel: Parcel
    columns: Mapping[DType, Section]
    histograms: Section

    @property
    def n_tokens(self) -> int:
        """The number of valid tokens of all sequences."""
        return self.columns["i8"].total(self.parcel.names["i8"].index("n_tokens"))

    def by_name(self) -> Rows:
        """Return the columns as arrays [B]."""
        return Rows(
            tuple(section.numbers() for section in self.columns.values()),
            tuple(self.parcel.names.get(dtype, ()) for dtype in self.columns),
        )

    def histograms_by_pair(self) -> dict[Pair, Any]:
        """Return the histograms as arrays [N_BINS]."""
        return dict(zip(self.parcel.pairs, self.histograms.numbers(), strict=True))


def parcel(columns: Columns) -> Parcel:
    """Return columns, which must be numpy, in one piece: with one NaN and one zero, as the service stores them."""
    names = {dtype: tuple(sorted(name for name in columns if COLUMNS[name].dtype == dtype)) for dtype in DTYPES}
    rows = {dtype: _rows([columns[name] for name in group], dtype) for dtype, group in names.items()}
    pairs = tuple(sorted(columns.histograms))
    histograms = _rows([columns.histograms[pair] for pair in pairs], "i8")
    return packed(Blocks(columns.n_sequences, names, rows, pairs, histograms))


def packed(blocks: Blocks) -> Parcel:
    """Return blocks in one piece: the same numbers are the same bytes, as long as the same zstd packs them."""
    planes = [shuffled(blocks.rows[dtype], int(dtype[1])) for dtype in DTYPES]
    data = compressed_noise(b"".join([*planes, shuffled(blocks.histograms, 8)]))
    return Parcel(blocks.n_sequences, dict(blocks.names), blocks.pairs, data)


def opened(parcel: Parcel) -> Opened:
    """Open a parcel. Errors: WireError naming what is wrong with it; what is in it was not looked at."""
    n = parcel.n_sequences
    if not 0 <= n <= MAX_SEQUENCES:
        raise WireError("parcel.n_sequences", f"must be 0 to {MAX_SEQUENCES}, and is {shown(n)}")
    try:
        data = decompressed(parcel.data, n_bytes=parcel.n_bytes)
    except zstandard.ZstdError as error:
        needed = f"the {parcel.n_bytes} bytes that its names, pairs and n_sequences ask for"
        raise WireError("parcel.data", f"is not one zstd frame of {needed}: {error}") from error
    columns: dict[DType, Section] = {}
    offset = 0
    for dtype in DTYPES:
        columns[dtype] = Section(data, dtype, (len(parcel.names.get(dtype, ())), n), offset)
        offset = columns[dtype].end
    return Opened(parcel, columns, Section(data, "i8", (len(parcel.pairs), N_BINS), offset))


def _rows(arrays: Sequence[Any], dtype: DType) -> bytes:
    return canonical(np.array(arrays, f"<{dtype}").tobytes(), dtype)

"""Columns from the wire, checked: those that come one by one are taken as one matrix a dtype."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from trmon_client.core.arrays.dtypes import REMEMBERED_LAYOUTS, DType
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS, Pair, Reduction
from trmon_client.core.wire.column_blocks import DTYPES, FLOATS, ColumnBlocks, canonical_numbers, may_be_odd
from trmon_client.core.wire.errors import WireError, shorten_value
from trmon_client.core.wire.messages import WIRE_MINOR, EncodedColumn, JsonNumber, PackedColumns, Report, WireColumn
from trmon_client.core.wire.packed_columns import (
    MAX_SEQUENCES,
    DTypeSection,
    UnpackedColumns,
    open_packed_columns,
    pack_blocks,
)

MAX_PARCEL_BYTES = 64 << 20
"""What a parcel that comes may unpack to: a report of 90,000 sequences."""
COUNT_BYTES = 5
MAX_COUNT = 1 << 8 * COUNT_BYTES
"""What no count of tokens reaches: sums of a report's counts are whole numbers of 64 bits."""

_NO_COUNT = f"counts must be zero or more, and below {MAX_COUNT}"
_dtype_of, _data_of = attrgetter("dtype"), attrgetter("data")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of a report that are known here: as they came, and by dtype in the order of their names."""

    given: tuple[str, ...]
    by_dtype: Mapping[DType, tuple[str, ...]]
    counts: tuple[int, ...]
    """Which of the whole numbers are counts."""


def unpack_columns(report: Report) -> Columns:
    """Return the columns of a report as numpy arrays, checked, bit for bit and in the order in which they came.

    Errors: WireError naming the column: unknown, wrong dtype, wrong length, or a pair that lacks one.
    """
    plain = _plain(report)
    layout = _layout_of(plain)
    blocks = _blocks(plain, layout)
    values = blocks.by_name()
    return _columns(report, {name: values[name] for name in layout.given}, blocks.histograms_by_pair())


def storable_columns(report: Report) -> tuple[PackedColumns, int]:
    """Return the columns of a report, checked, as they are stored, and how many valid tokens they count.

    Errors: as of `unpack_columns`.
    """
    if report.parcel is not None:
        _check_parcel(report.parcel)
        found = open_packed_columns(report.parcel)
        if _is_canonical(found, wire=report.wire):
            _check_bits(report.accepted, report.parcel.n_sequences)
            return report.parcel, found.n_tokens
    plain = _plain(report)
    blocks = _blocks(plain, _layout_of(plain))
    rows = {dtype: canonical_numbers(rows, dtype) for dtype, rows in blocks.rows.items()}
    return pack_blocks(replace(blocks, rows=rows)), blocks.n_tokens


def columns_of_packed(report: Report, parcel: PackedColumns) -> Columns:
    """Return what is in a parcel as the columns of a report. Errors: WireError where it cannot be opened."""
    found = open_packed_columns(parcel)
    return _columns(report, found.by_name(), found.histograms_by_pair())


def _columns(report: Report, values: Mapping[str, Any], histograms: dict[Pair, Any]) -> Columns:
    return Columns(
        by_name=values,
        histograms=histograms,
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )


def _check_parcel(parcel: PackedColumns) -> None:
    _check_told_once("parcel.names", _names(parcel))
    _check_told_once("parcel.pairs", parcel.pairs)
    if parcel.n_bytes > MAX_PARCEL_BYTES:
        raise WireError("parcel", f"holds more than {MAX_PARCEL_BYTES} bytes; send it in chunks")


@lru_cache(REMEMBERED_LAYOUTS)
def _check_told_once(field: str, names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names):
        raise WireError(field, f"{shorten_value(Counter(names).most_common(1)[0][0])} is there twice")


def _plain(report: Report) -> Report:
    """Return a report whose columns come one by one."""
    if report.parcel is None:
        return report
    found = open_packed_columns(report.parcel)
    return msgspec.structs.replace(
        report,
        columns={
            name: EncodedColumn(dtype, row.tobytes())
            for dtype, names in report.parcel.names.items()
            for name, row in zip(names, found.columns[dtype].numbers(), strict=True)
        },
        histograms={pair: EncodedColumn("i8", counts.tobytes()) for pair, counts in found.histograms_by_pair().items()},
        parcel=None,
    )


def _is_canonical(found: UnpackedColumns, *, wire: tuple[int, int]) -> bool:
    """Whether what is in a parcel is in order, and as it is stored; if not, unpacking it tells what is wrong.

    What is looked for shows in the top bytes of the numbers, which lie together. Errors: WireError naming a column.
    """
    parcel = found.parcel
    layout = _layout(_known(_names(parcel), wire=wire))
    return (
        layout.by_dtype == parcel.names
        and parcel.pairs == tuple(sorted(parcel.pairs))
        and found.columns["i8"].fits(layout.counts, n_bytes=COUNT_BYTES)
        and found.histograms.fits(range(len(parcel.pairs)), n_bytes=COUNT_BYTES)
        and not any(_is_odd(found.columns[dtype]) for dtype in FLOATS)
    )


def _names(parcel: PackedColumns) -> tuple[str, ...]:
    return tuple(chain.from_iterable(parcel.names.values()))


def _is_odd(section: DTypeSection) -> bool:
    """Whether there is another NaN or another zero among floats than those of the canonical form."""
    if not may_be_odd(section.top_bytes):
        return False
    rows: bytes = section.numbers().tobytes()
    return canonical_numbers(rows, section.dtype) != rows


def wire_number(value: JsonNumber) -> float:
    """Return a wire number as a float: null is NaN."""
    return math.nan if value is None else float(value)


def _layout_of(report: Report) -> _Layout:
    return _layout(_known(tuple(report.columns), wire=report.wire))


def _known(names: tuple[str, ...], *, wire: tuple[int, int]) -> tuple[str, ...]:
    """A newer client may send columns that are not known here: they are left out."""
    return tuple(filter(COLUMNS.__contains__, names)) if wire[1] > WIRE_MINOR else names


@lru_cache(REMEMBERED_LAYOUTS)
def _layout(given: tuple[str, ...]) -> _Layout:
    """Remembered, as all reports of a run have the same columns."""
    for name in given:
        if name not in COLUMNS:
            raise WireError(f"columns.{shorten_value(name)}", "unknown column; this service knows wire version 1.0")
    names = sorted(set(given))
    for needed in ("n_tokens", "n_invalid"):
        if needed not in names:
            raise WireError(f"columns.{needed}", "is required")
    _check_pairs(names)
    by_dtype = {dtype: tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in DTYPES}
    counts = (i for i, name in enumerate(by_dtype["i8"]) if COLUMNS[name].reduction is Reduction.SUM)
    return _Layout(given, by_dtype, tuple(counts))


def _check_pairs(names: Iterable[str]) -> None:
    known = set(names)
    pairs = [pair for pair in PAIRS if f"{pair}_sum_d" in known]
    if not pairs:
        raise WireError("columns", "no pair: mismatch_, staleness_ or total_ columns are needed")
    for pair in pairs:
        for stem in PAIR_STEMS:
            if f"{pair}_{stem}" not in known:
                raise WireError(f"columns.{pair}_{stem}", f"is required beside {pair}_sum_d")


def _n_sequences(n_tokens: WireColumn) -> int:
    n = len(_array("columns.n_tokens", n_tokens, "i8"))
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"at most {MAX_SEQUENCES} sequences a report, and has {n}")
    return n


def _blocks(report: Report, layout: _Layout) -> ColumnBlocks:
    """Return the columns of a report, checked, bit for bit."""
    n = _n_sequences(report.columns["n_tokens"])
    rows = {dtype: _rows(report.columns, names, dtype=dtype, n=n) for dtype, names in layout.by_dtype.items()}
    _check_counts(rows["i8"], layout, n=n)
    _check_bits(report.accepted, n)
    pairs = tuple(sorted(report.histograms))
    return ColumnBlocks(n, layout.by_dtype, rows, pairs, _histograms(report, pairs))


def _rows(columns: Mapping[str, WireColumn], names: tuple[str, ...], *, dtype: DType, n: int) -> bytes:
    """Return columns of one dtype, [columns, n], as little-endian bytes."""
    picked = [columns[name] for name in names]
    rows = _joined(picked, dtype=dtype, n=n)
    return np.array(_arrays(picked, names=names, dtype=dtype, n=n), f"<{dtype}").tobytes() if rows is None else rows


def _joined(columns: Sequence[WireColumn], *, dtype: DType, n: int) -> bytes | None:
    """Return packed columns, one after the other; None where one is a list, or is not what it should be."""
    try:
        data: list[bytes] = list(map(_data_of, columns))
    except AttributeError:
        return None
    if set(map(_dtype_of, columns)) <= {dtype} and set(map(len, data)) <= {n * int(dtype[1])}:
        return b"".join(data)
    return None


def _arrays(columns: list[WireColumn], *, names: tuple[str, ...], dtype: DType, n: int) -> list[Any]:
    """Return the columns one by one: lists of numbers among them, or something wrong, which is named."""
    arrays = []
    for name, column in zip(names, columns, strict=True):
        array = _array(f"columns.{name}", column, dtype)
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        arrays.append(array)
    return arrays


def _check_counts(rows: bytes, layout: _Layout, *, n: int) -> None:
    names = layout.by_dtype["i8"]
    are_counts = _are_counts(np.frombuffer(rows, "<i8").reshape(len(names), n)).all(-1)
    for i in layout.counts:
        if not are_counts[i]:
            raise WireError(f"columns.{names[i]}", _NO_COUNT)


def _are_counts(numbers: Any) -> Any:
    """Return which whole numbers can be counts: as one without a sign, a number below zero is a large one."""
    return numbers.view("<u8") < MAX_COUNT


def _check_bits(accepted: bytes | None, n: int) -> None:
    if accepted is not None and len(accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, and it has {len(accepted)}")


def _array(field: str, packed: WireColumn, dtype: DType) -> Any:
    if isinstance(packed, EncodedColumn):
        if packed.dtype != dtype:
            raise WireError(field, f"dtype must be {dtype}, and is {packed.dtype}")
        if len(packed.data) % int(dtype[1]):
            raise WireError(field, f"{len(packed.data)} bytes are not a whole number of {dtype}")
        return np.frombuffer(packed.data, f"<{dtype}")
    if dtype != "i8":
        return _floats(field, packed, dtype)
    whole = [value for value in packed if isinstance(value, int) and -(1 << 63) <= value < 1 << 63]
    if len(whole) != len(packed):
        raise WireError(field, "must be whole numbers of 64 bits")
    return np.array(whole, dtype="<i8")


def _floats(field: str, packed: list[JsonNumber], dtype: DType) -> Any:
    try:
        with np.errstate(over="ignore"):
            return np.array([wire_number(value) for value in packed], dtype=f"<{dtype}")
    except OverflowError as error:
        raise WireError(field, "holds a number too large for a float64") from error


def _histograms(report: Report, pairs: tuple[Pair, ...]) -> bytes:
    """Return the counts of these pairs, [pairs, N_BINS], as little-endian bytes."""
    given = [report.histograms[pair] for pair in pairs]
    rows = _joined(given, dtype="i8", n=N_BINS)
    if rows is None or not _are_counts(np.frombuffer(rows, "<i8")).all():
        rows = b"".join(_histogram(pair, packed).tobytes() for pair, packed in zip(pairs, given, strict=True))
    return rows


def _histogram(pair: Pair, packed: WireColumn) -> Any:
    counts = _array(f"histograms.{pair}", packed, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, and has {len(counts)}")
    if not _are_counts(counts).all():
        raise WireError(f"histograms.{pair}", _NO_COUNT)
    return counts

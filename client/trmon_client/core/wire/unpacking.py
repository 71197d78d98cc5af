"""Unpacks and checks the columns of a report, whether sent packed or one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from trmon_client.core.arrays import MAX_CACHED_LAYOUTS, DType
from trmon_client.core.column_schema import COLUMNS, PAIR_STEMS, PAIRS, Pair, Reduction
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.wire.column_decoding import (
    COUNT_BYTES,
    NOT_A_COUNT,
    are_counts,
    column_bytes,
    count_sequences,
    histogram_bytes,
)
from trmon_client.core.wire.messages import (
    WIRE_MAJOR,
    WIRE_MINOR,
    EncodedColumn,
    PackedColumns,
    Report,
    WireError,
    shorten_value,
)
from trmon_client.core.wire.packed_columns import (
    DTYPES,
    FLOATS,
    ColumnBlocks,
    DTypeSection,
    UnpackedColumns,
    canonical_numbers,
    may_be_odd,
    open_packed_columns,
    pack_blocks,
)
from trmon_client.core.wire.packed_turns import unpack_turns


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The known columns of a report: in the order received, and by dtype, sorted by name."""

    given: tuple[str, ...]
    by_dtype: Mapping[DType, tuple[str, ...]]
    counts: tuple[int, ...]
    """The indices of the counts among the i8 columns."""


def known_columns(names: tuple[str, ...], *, wire: tuple[int, int]) -> tuple[str, ...]:
    """Return the names without the unknown columns that a client with a newer minor version may send."""
    return tuple(filter(COLUMNS.__contains__, names)) if wire[1] > WIRE_MINOR else names


@lru_cache(MAX_CACHED_LAYOUTS)
def column_layout(given: tuple[str, ...]) -> ColumnLayout:
    """Return the layout of columns; cached, because all reports of a run have the same columns.

    Errors: WireError naming the column that is unknown or missing.
    """
    for name in given:
        if name not in COLUMNS:
            raise WireError(
                f"columns.{shorten_value(name)}",
                f"unknown column; this service supports wire version {WIRE_MAJOR}.{WIRE_MINOR}",
            )
    names = sorted(set(given))
    for required in ("n_tokens", "n_invalid"):
        if required not in names:
            raise WireError(f"columns.{required}", "is required")
    _check_pairs(names)
    by_dtype = {dtype: tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in DTYPES}
    counts = (i for i, name in enumerate(by_dtype["i8"]) if COLUMNS[name].reduction is Reduction.SUM)
    return ColumnLayout(given, by_dtype, tuple(counts))


def _check_pairs(names: Iterable[str]) -> None:
    known = set(names)
    pairs = [pair for pair in PAIRS if f"{pair}_sum_d" in known]
    for pair in pairs:
        for stem in PAIR_STEMS:
            if f"{pair}_{stem}" not in known:
                raise WireError(f"columns.{pair}_{stem}", f"is required with {pair}_sum_d")


@lru_cache(MAX_CACHED_LAYOUTS)
def check_no_duplicates(field: str, names: tuple[str, ...]) -> None:
    """Check that no name occurs twice. Errors: WireError naming the field."""
    if len(set(names)) < len(names):
        raise WireError(field, f"{shorten_value(Counter(names).most_common(1)[0][0])} is duplicated")


MAX_PARCEL_BYTES = 64 << 20
"""The maximum unpacked size of packed columns: a report of 90,000 sequences."""


def unpack_columns(report: Report) -> Columns:
    """Return the checked columns of a report as numpy arrays, bit for bit and in the order received.

    Errors: WireError naming the column that is unknown or missing, or has the wrong dtype or length.
    """
    unpacked = _with_single_columns(report)
    layout = _layout(unpacked)
    blocks = _blocks(unpacked, layout)
    values = blocks.by_name()
    return _columns(report, {name: values[name] for name in layout.given}, blocks.histograms_by_pair())


def storable_columns(report: Report) -> tuple[PackedColumns, int]:
    """Return the checked columns of a report in the form that is stored, and their number of valid tokens.

    Errors: WireError, as for `unpack_columns`.
    """
    if report.parcel is not None:
        _check_parcel(report.parcel)
        found = open_packed_columns(report.parcel)
        if _is_canonical(found, wire=report.wire):
            _check_bits(report.accepted, report.parcel.n_sequences)
            _turns(report, _names(report.parcel), n_sequences=report.parcel.n_sequences)
            return report.parcel, found.n_tokens
    unpacked = _with_single_columns(report)
    layout = _layout(unpacked)
    blocks = _blocks(unpacked, layout)
    _turns(report, layout.given, n_sequences=blocks.n_sequences)
    rows = {dtype: canonical_numbers(rows, dtype) for dtype, rows in blocks.rows.items()}
    return pack_blocks(replace(blocks, rows=rows)), blocks.n_tokens


def columns_of_packed(report: Report, parcel: PackedColumns) -> Columns:
    """Return packed columns as the columns of a report. Errors: WireError if they cannot be opened."""
    found = open_packed_columns(parcel)
    return _columns(report, found.by_name(), found.histograms_by_pair())


def _columns(report: Report, values: Mapping[str, Any], histograms: dict[Pair, Any]) -> Columns:
    turns = _turns(report, values, n_sequences=len(values["n_tokens"]))
    return Columns(
        by_name=values,
        histograms=histograms,
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
        turns=turns,
    )


def _turns(report: Report, names: Container[str], *, n_sequences: int) -> TurnColumns | None:
    if report.turns is msgspec.UNSET:
        return None
    pairs = tuple(pair for pair in PAIRS if f"{pair}_sum_d" in names)
    return unpack_turns(report.turns, n_sequences=n_sequences, pairs=pairs)


def _check_parcel(parcel: PackedColumns) -> None:
    check_no_duplicates("parcel.names", _names(parcel))
    check_no_duplicates("parcel.pairs", parcel.pairs)
    if parcel.n_bytes > MAX_PARCEL_BYTES:
        raise WireError("parcel", f"holds more than {MAX_PARCEL_BYTES} bytes; send it in chunks")


def _with_single_columns(report: Report) -> Report:
    """Return a report with its columns one by one instead of packed."""
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
    """Return whether packed columns are valid and in the stored form; if not, unpacking them finds the error.

    The check reads only the top bytes of the numbers, which are contiguous. Errors: WireError naming a column.
    """
    parcel = found.parcel
    layout = column_layout(known_columns(_names(parcel), wire=wire))
    return (
        layout.by_dtype == parcel.names
        and parcel.pairs == tuple(sorted(parcel.pairs))
        and found.columns["i8"].fits(layout.counts, n_bytes=COUNT_BYTES)
        and found.histograms.fits(range(len(parcel.pairs)), n_bytes=COUNT_BYTES)
        and not any(_has_noncanonical_floats(found.columns[dtype]) for dtype in FLOATS)
    )


def _layout(report: Report) -> ColumnLayout:
    return column_layout(known_columns(tuple(report.columns), wire=report.wire))


def _names(parcel: PackedColumns) -> tuple[str, ...]:
    return tuple(chain.from_iterable(parcel.names.values()))


def _has_noncanonical_floats(section: DTypeSection) -> bool:
    """Return whether floats contain a NaN or a zero other than the canonical ones."""
    if not may_be_odd(section.top_bytes):
        return False
    rows: bytes = section.numbers().tobytes()
    return canonical_numbers(rows, section.dtype) != rows


def _blocks(report: Report, layout: ColumnLayout) -> ColumnBlocks:
    """Return the checked columns of a report, bit for bit."""
    n = count_sequences(report.columns["n_tokens"])
    rows = {dtype: column_bytes(report.columns, names, dtype=dtype, n=n) for dtype, names in layout.by_dtype.items()}
    _check_counts(rows["i8"], layout, n=n)
    _check_bits(report.accepted, n)
    pairs = tuple(sorted(report.histograms))
    return ColumnBlocks(n, layout.by_dtype, rows, pairs, histogram_bytes(report, pairs))


def _check_counts(rows: bytes, layout: ColumnLayout, *, n: int) -> None:
    names = layout.by_dtype["i8"]
    is_count = are_counts(np.frombuffer(rows, "<i8").reshape(len(names), n)).all(-1)
    for i in layout.counts:
        if not is_count[i]:
            raise WireError(f"columns.{names[i]}", NOT_A_COUNT)


def _check_bits(accepted: bytes | None, n: int) -> None:
    if accepted is not None and len(accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, got {len(accepted)}")

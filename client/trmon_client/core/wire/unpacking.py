"""Unpacks and checks the columns of a report and of its turns, whether sent packed or one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from trmon_client.core.arrays import MAX_CACHED_LAYOUTS, DType
from trmon_client.core.column_schema import (
    COLUMNS,
    N_BINS,
    PAIR_STEMS,
    PAIRS,
    TURN_COLUMNS,
    TURN_STEMS,
    ColumnSpec,
    Pair,
    Reduction,
)
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.inputs.labels import MAX_TURNS
from trmon_client.core.wire.messages import (
    WIRE_MAJOR,
    WIRE_MINOR,
    EncodedColumn,
    JsonNumber,
    PackedColumns,
    PackedTurns,
    Report,
    WireColumn,
    WireError,
    shorten_value,
)
from trmon_client.core.wire.packed_columns import (
    FLOATS,
    MAX_SEQUENCES,
    DTypeSection,
    UnpackedColumns,
    canonical_numbers,
    may_be_odd,
    names_by_dtype,
    open_packed_columns,
    pack_bits,
    pack_rows,
    pack_table,
)

SEQUENCE = "sequence"
"""The column with the index of a turn's sequence."""
_TURN_TABLE = {**TURN_COLUMNS, SEQUENCE: ColumnSpec(SEQUENCE, "i8", Reduction.POSITION)}


def pack_turns(turns: TurnColumns, *, accepted: Any = None) -> PackedTurns:
    """Return numpy columns of turns packed in canonical form. Args: accepted: bool [R], what the client decided."""
    columns = {**turns.by_name, SEQUENCE: turns.sequences}
    table = pack_table(columns, _TURN_TABLE, n_rows=len(turns.sequences), histograms={})
    return PackedTurns(table, None if accepted is None else pack_bits(accepted))


def unpacked_bytes(report: Report) -> int:
    """Return the size of a report's packed columns and turns once unpacked, as it states them."""
    tables = (report.parcel, None if report.turns is msgspec.UNSET else report.turns.table)
    return sum(max(table.n_bytes, 0) for table in tables if table is not None)


def unpack_turns(packed: PackedTurns, *, n_sequences: int, pairs: tuple[Pair, ...]) -> TurnColumns:
    """Return the checked columns of a report's turns as numpy arrays.

    Args: n_sequences, pairs: those of the report's columns.
    Errors: WireError naming the field or the column that is invalid.
    """
    found, sequences = open_turns(packed, n_sequences=n_sequences, pairs=pairs)
    columns = dict(found.by_name())
    del columns[SEQUENCE]
    return TurnColumns(np.bincount(sequences, minlength=n_sequences), columns)


def open_turns(packed: PackedTurns, *, n_sequences: int, pairs: tuple[Pair, ...]) -> tuple[UnpackedColumns, Any]:
    """Return the checked turns, opened, and the sequence of each. Args, errors: as for `unpack_turns`."""
    n_turns = packed.table.n_sequences
    if n_turns > MAX_TURNS:
        raise WireError("turns.table.n_sequences", f"must be at most {MAX_TURNS}, got {shorten_value(n_turns)}")
    expected = ("n_tokens", SEQUENCE, *(f"{pair}_{stem}" for pair in pairs for stem in TURN_STEMS))
    if packed.table.names != names_by_dtype(expected, _TURN_TABLE) or packed.table.pairs:
        raise WireError("turns.table.names", f"must be those of a table of turns of {', '.join(pairs) or 'no pair'}")
    found = open_packed_columns(packed.table)
    integers = dict(zip(packed.table.names["i8"], found.columns["i8"].numbers(), strict=True))
    sequences = integers[SEQUENCE]
    if not are_counts(integers["n_tokens"]).all():
        raise WireError("turns.table.n_tokens", NOT_A_COUNT)
    if n_turns and (sequences[0] < 0 or sequences[-1] >= n_sequences or (np.diff(sequences) < 0).any()):
        raise WireError(f"turns.table.{SEQUENCE}", f"must ascend from 0 and be below {n_sequences}")
    if packed.accepted is not None and len(packed.accepted) != -(-n_turns // 8):
        raise WireError("turns.accepted", f"{n_turns} turns take {-(-n_turns // 8)} bytes of bits")
    return found, sequences


COUNT_BYTES = 5
MAX_COUNT = 1 << 8 * COUNT_BYTES
"""Counts of tokens are below this, so that their sum over a report fits in 64 bits."""
NOT_A_COUNT = f"counts must be zero or more, and below {MAX_COUNT}"

_dtype_of, _data_of = attrgetter("dtype"), attrgetter("data")


def wire_number(value: JsonNumber) -> float:
    """Return a JSON number as a float; null is NaN."""
    return math.nan if value is None else float(value)


def column_bytes(columns: Mapping[str, WireColumn], names: tuple[str, ...], *, dtype: DType, n: int) -> bytes:
    """Return the columns of one dtype, [columns, n], as little-endian bytes. Errors: WireError naming the column."""
    encoded = [columns[name] for name in names]
    rows = _joined(encoded, dtype=dtype, n=n)
    if rows is not None:
        return rows
    # One by one, which allows lists and names an invalid column.
    arrays = []
    for name, column in zip(names, encoded, strict=True):
        array = _array(f"columns.{name}", column, dtype)
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        arrays.append(array)
    return np.array(arrays, f"<{dtype}").tobytes()


def _joined(columns: Sequence[WireColumn], *, dtype: DType, n: int) -> bytes | None:
    """Return the concatenated bytes of columns; None if one is a list or has the wrong dtype or length."""
    try:
        data: list[bytes] = list(map(_data_of, columns))
    except AttributeError:
        return None
    if set(map(_dtype_of, columns)) <= {dtype} and set(map(len, data)) <= {n * int(dtype[1])}:
        return b"".join(data)
    return None


def are_counts(numbers: Any) -> Any:
    """Return which integers can be counts; as unsigned numbers, negative ones are too large."""
    return numbers.view("<u8") < MAX_COUNT


def _array(field: str, encoded: WireColumn, dtype: DType) -> Any:
    if isinstance(encoded, EncodedColumn):
        if encoded.dtype != dtype:
            raise WireError(field, f"dtype must be {dtype}, got {encoded.dtype}")
        if len(encoded.data) % int(dtype[1]):
            raise WireError(field, f"{len(encoded.data)} bytes are not a whole number of {dtype}")
        return np.frombuffer(encoded.data, f"<{dtype}")
    if dtype != "i8":
        return _floats(field, encoded, dtype)
    whole = [value for value in encoded if isinstance(value, int) and -(1 << 63) <= value < 1 << 63]
    if len(whole) != len(encoded):
        raise WireError(field, "must be whole numbers of 64 bits")
    return np.array(whole, dtype="<i8")


def _floats(field: str, encoded: list[JsonNumber], dtype: DType) -> Any:
    try:
        with np.errstate(over="ignore"):
            return np.array([wire_number(value) for value in encoded], dtype=f"<{dtype}")
    except OverflowError as error:
        raise WireError(field, "holds a number too large for a float64") from error


def histogram_bytes(report: Report, pairs: tuple[Pair, ...]) -> bytes:
    """Return the histograms of the pairs, [pairs, N_BINS], as little-endian bytes. Errors: WireError naming one."""
    given = [report.histograms[pair] for pair in pairs]
    rows = _joined(given, dtype="i8", n=N_BINS)
    if rows is None or not are_counts(np.frombuffer(rows, "<i8")).all():
        rows = b"".join(_histogram(pair, encoded).tobytes() for pair, encoded in zip(pairs, given, strict=True))
    return rows


def _histogram(pair: Pair, encoded: WireColumn) -> Any:
    counts = _array(f"histograms.{pair}", encoded, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, got {len(counts)}")
    if not are_counts(counts).all():
        raise WireError(f"histograms.{pair}", NOT_A_COUNT)
    return counts


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The known columns of a report by dtype, sorted by name."""

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
    known = set(given)
    for required in ("n_tokens", "n_invalid"):
        if required not in known:
            raise WireError(f"columns.{required}", "is required")
    for pair in _pairs(known):
        for stem in PAIR_STEMS:
            if f"{pair}_{stem}" not in known:
                raise WireError(f"columns.{pair}_{stem}", f"is required with {pair}_sum_d")
    by_dtype = names_by_dtype(known, COLUMNS)
    counts = (i for i, name in enumerate(by_dtype["i8"]) if COLUMNS[name].reduction is Reduction.SUM)
    return ColumnLayout(by_dtype, tuple(counts))


@lru_cache(MAX_CACHED_LAYOUTS)
def check_no_duplicates(field: str, names: tuple[str, ...]) -> None:
    """Check that no name occurs twice. Errors: WireError naming the field."""
    if len(set(names)) < len(names):
        raise WireError(field, f"{shorten_value(Counter(names).most_common(1)[0][0])} is duplicated")


MAX_PARCEL_BYTES = 64 << 20
"""The maximum unpacked size of packed columns: a report of 90,000 sequences."""


def unpack_columns(report: Report) -> Columns:
    """Return the checked columns of a report as numpy arrays, as they are stored. Errors: as for `storable_columns`."""
    return columns_of_packed(report, storable_columns(report)[0])


def storable_columns(report: Report) -> tuple[PackedColumns, int]:
    """Return the checked columns of a report in the form that is stored, and their number of valid tokens.

    Errors: WireError naming the column that is unknown or missing, or has the wrong dtype or length.
    """
    if report.parcel is not None:
        check_no_duplicates("parcel.names", _flat(report.parcel.names))
        check_no_duplicates("parcel.pairs", report.parcel.pairs)
        if report.parcel.n_bytes > MAX_PARCEL_BYTES:
            raise WireError("parcel", f"holds more than {MAX_PARCEL_BYTES} bytes; send it in chunks")
        found = open_packed_columns(report.parcel)
        if _is_canonical(found, wire=report.wire):
            _check_bits(report.accepted, report.parcel.n_sequences)
            _check_turns(report, _flat(report.parcel.names), n_sequences=report.parcel.n_sequences)
            return report.parcel, found.n_tokens
    unpacked = _with_single_columns(report)
    layout = column_layout(known_columns(tuple(unpacked.columns), wire=unpacked.wire))
    names = layout.by_dtype
    rows, n = _checked_rows(unpacked, layout)
    pairs = tuple(sorted(unpacked.histograms))
    histograms = histogram_bytes(unpacked, pairs)
    _check_turns(report, _flat(names), n_sequences=n)
    n_tokens = np.frombuffer(rows["i8"], "<i8", n, 8 * n * names["i8"].index("n_tokens")).sum()
    rows = {dtype: canonical_numbers(numbers, dtype) for dtype, numbers in rows.items()}
    return pack_rows(rows, names, n_rows=n, pairs=pairs, histograms=histograms), int(n_tokens)


def columns_of_packed(report: Report, parcel: PackedColumns) -> Columns:
    """Return packed columns as the columns of a report. Errors: WireError if they cannot be opened."""
    found = open_packed_columns(parcel)
    by_name = found.by_name()
    return Columns(
        by_name=by_name,
        histograms=found.histograms_by_pair(),
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
        turns=None
        if report.turns is msgspec.UNSET
        else unpack_turns(report.turns, n_sequences=parcel.n_sequences, pairs=_pairs(by_name)),
    )


def _check_turns(report: Report, names: Container[str], *, n_sequences: int) -> None:
    if report.turns is not msgspec.UNSET:
        open_turns(report.turns, n_sequences=n_sequences, pairs=_pairs(names))


def _pairs(names: Container[str]) -> tuple[Pair, ...]:
    return tuple(pair for pair in PAIRS if f"{pair}_sum_d" in names)


def _with_single_columns(report: Report) -> Report:
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
    layout = column_layout(known_columns(_flat(parcel.names), wire=wire))
    return (
        layout.by_dtype == parcel.names
        and parcel.pairs == tuple(sorted(parcel.pairs))
        and found.columns["i8"].fits(layout.counts, n_bytes=COUNT_BYTES)
        and found.histograms.fits(range(len(parcel.pairs)), n_bytes=COUNT_BYTES)
        and not any(_has_noncanonical_floats(found.columns[dtype]) for dtype in FLOATS)
    )


def _flat(names: Mapping[DType, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(names.values()))


def _has_noncanonical_floats(section: DTypeSection) -> bool:
    if not may_be_odd(section.top_bytes):
        return False
    rows: bytes = section.numbers().tobytes()
    return canonical_numbers(rows, section.dtype) != rows


def _checked_rows(report: Report, layout: ColumnLayout) -> tuple[dict[DType, bytes], int]:
    """Return the checked columns of a report by dtype, bit for bit, and the number of sequences."""
    n = len(_array("columns.n_tokens", report.columns["n_tokens"], "i8"))
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"must have at most {MAX_SEQUENCES} sequences in a report, got {n}")
    rows = {dtype: column_bytes(report.columns, names, dtype=dtype, n=n) for dtype, names in layout.by_dtype.items()}
    names = layout.by_dtype["i8"]
    is_count = are_counts(np.frombuffer(rows["i8"], "<i8").reshape(len(names), n)).all(-1)
    for i in layout.counts:
        if not is_count[i]:
            raise WireError(f"columns.{names[i]}", NOT_A_COUNT)
    _check_bits(report.accepted, n)
    return rows, n


def _check_bits(accepted: bytes | None, n: int) -> None:
    if accepted is not None and len(accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, got {len(accepted)}")

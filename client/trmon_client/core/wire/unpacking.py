"""Unpacks and checks the columns of a report and of its turns, whether sent packed or one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
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
    _check_counts("turns.table.n_tokens", integers["n_tokens"])
    if n_turns and (sequences[0] < 0 or sequences[-1] >= n_sequences or (np.diff(sequences) < 0).any()):
        raise WireError(f"turns.table.{SEQUENCE}", f"must ascend from 0 and be below {n_sequences}")
    if packed.accepted is not None and len(packed.accepted) != -(-n_turns // 8):
        raise WireError("turns.accepted", f"{n_turns} turns take {-(-n_turns // 8)} bytes of bits")
    return found, sequences


COUNT_BYTES = 5
MAX_COUNT = 1 << 8 * COUNT_BYTES
"""Counts of tokens are below this, so that their sum over a report fits in 64 bits."""


def wire_number(value: JsonNumber) -> float:
    """Return a JSON number as a float; null is NaN."""
    return math.nan if value is None else float(value)


def _check_counts(field: str, numbers: Any) -> None:
    # As unsigned numbers, negative ones are too large.
    if not (numbers.view("<u8") < MAX_COUNT).all():
        raise WireError(field, f"counts must be zero or more, and below {MAX_COUNT}")


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
    return ColumnLayout(by_dtype, tuple(i for i, name in enumerate(by_dtype["i8"]) if _is_count(name)))


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
    found = None if report.parcel is None else _opened(report.parcel)
    if found is not None and _is_canonical(found, wire=report.wire):
        parcel, n_tokens = found.parcel, found.n_tokens
    else:
        given = (report.columns, report.histograms) if found is None else _encoded(found)
        columns, histograms = _checked_arrays(*given, wire=report.wire)
        parcel = pack_table(columns, COLUMNS, n_rows=len(columns["n_tokens"]), histograms=histograms)
        n_tokens = int(columns["n_tokens"].sum())
    n = parcel.n_sequences
    if report.accepted is not None and len(report.accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, got {len(report.accepted)}")
    if report.turns is not msgspec.UNSET:
        open_turns(report.turns, n_sequences=n, pairs=_pairs(_flat(parcel.names)))
    return parcel, n_tokens


def _opened(parcel: PackedColumns) -> UnpackedColumns:
    check_no_duplicates("parcel.names", _flat(parcel.names))
    check_no_duplicates("parcel.pairs", parcel.pairs)
    if parcel.n_bytes > MAX_PARCEL_BYTES:
        raise WireError("parcel", f"holds more than {MAX_PARCEL_BYTES} bytes; send it in chunks")
    return open_packed_columns(parcel)


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


def _pairs(names: Container[str]) -> tuple[Pair, ...]:
    return tuple(pair for pair in PAIRS if f"{pair}_sum_d" in names)


def _encoded(found: UnpackedColumns) -> tuple[dict[str, EncodedColumn], dict[Pair, EncodedColumn]]:
    """Return packed columns and histograms as a client sends single ones."""
    columns = {
        name: EncodedColumn(dtype, row.tobytes())
        for dtype, names in found.parcel.names.items()
        for name, row in zip(names, found.columns[dtype].numbers(), strict=True)
    }
    return columns, {pair: EncodedColumn("i8", row.tobytes()) for pair, row in found.histograms_by_pair().items()}


def _checked_arrays(
    columns: Mapping[str, WireColumn], histograms: Mapping[Pair, WireColumn], *, wire: tuple[int, int]
) -> tuple[dict[str, Any], dict[Pair, Any]]:
    """Return the known columns and the histograms as numpy arrays, bit for bit. Errors: WireError naming one."""
    names = known_columns(tuple(columns), wire=wire)
    column_layout(names)
    n = len(_array("columns.n_tokens", columns["n_tokens"], "i8"))
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"must have at most {MAX_SEQUENCES} sequences in a report, got {n}")
    arrays, counts = {}, {}
    for name in names:
        arrays[name] = array = _array(f"columns.{name}", columns[name], COLUMNS[name].dtype)
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        if _is_count(name):
            _check_counts(f"columns.{name}", array)
    for pair, column in histograms.items():
        counts[pair] = array = _array(f"histograms.{pair}", column, "i8")
        if len(array) != N_BINS:
            raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, got {len(array)}")
        _check_counts(f"histograms.{pair}", array)
    return arrays, counts


def _is_count(name: str) -> bool:
    return COLUMNS[name].dtype == "i8" and COLUMNS[name].reduction is Reduction.SUM


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

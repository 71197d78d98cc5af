"""Decodes and checks single columns and histograms of a report: little-endian bytes, or JSON numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from trmon_client.core.arrays import DType
from trmon_client.core.column_schema import N_BINS, Pair
from trmon_client.core.wire.messages import EncodedColumn, JsonNumber, Report, WireColumn, WireError
from trmon_client.core.wire.packed_columns import MAX_SEQUENCES

COUNT_BYTES = 5
MAX_COUNT = 1 << 8 * COUNT_BYTES
"""Counts of tokens are below this, so that their sum over a report fits in 64 bits."""
NOT_A_COUNT = f"counts must be zero or more, and below {MAX_COUNT}"

_dtype_of, _data_of = attrgetter("dtype"), attrgetter("data")


def wire_number(value: JsonNumber) -> float:
    """Return a JSON number as a float; null is NaN."""
    return math.nan if value is None else float(value)


def count_sequences(n_tokens: WireColumn) -> int:
    """Return the number of sequences of a report. Errors: WireError if there are more than MAX_SEQUENCES."""
    n = len(_array("columns.n_tokens", n_tokens, "i8"))
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"must have at most {MAX_SEQUENCES} sequences in a report, got {n}")
    return n


def column_bytes(columns: Mapping[str, WireColumn], names: tuple[str, ...], *, dtype: DType, n: int) -> bytes:
    """Return the columns of one dtype, [columns, n], as little-endian bytes. Errors: WireError naming the column."""
    encoded = [columns[name] for name in names]
    rows = _joined(encoded, dtype=dtype, n=n)
    return np.array(_arrays(encoded, names=names, dtype=dtype, n=n), f"<{dtype}").tobytes() if rows is None else rows


def _joined(columns: Sequence[WireColumn], *, dtype: DType, n: int) -> bytes | None:
    """Return the concatenated bytes of columns; None if one is a list or has the wrong dtype or length."""
    try:
        data: list[bytes] = list(map(_data_of, columns))
    except AttributeError:
        return None
    if set(map(_dtype_of, columns)) <= {dtype} and set(map(len, data)) <= {n * int(dtype[1])}:
        return b"".join(data)
    return None


def _arrays(columns: list[WireColumn], *, names: tuple[str, ...], dtype: DType, n: int) -> list[Any]:
    """Return the columns decoded one by one, which allows lists and names an invalid column."""
    arrays = []
    for name, column in zip(names, columns, strict=True):
        array = _array(f"columns.{name}", column, dtype)
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        arrays.append(array)
    return arrays


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

"""Columns from the wire, checked.

A report has about 90 columns of a few hundred bytes each, so columns of one dtype are taken as one matrix: what is done
to each of them costs more than what is in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS, DType, Pair
from trmon_client.core.wire.errors import WireError, shown
from trmon_client.core.wire.messages import WIRE_MINOR, JsonNumber, PackedColumn, Report, WireColumn

MAX_SEQUENCES = 1 << 20
REMEMBERED_LAYOUTS = 256


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of a report that are known here: as they came, in the order of their names, and so by dtype."""

    given: tuple[str, ...]
    sorted: tuple[str, ...]
    by_dtype: Mapping[DType, tuple[str, ...]]


def unpack_columns(report: Report, *, canonical: bool = False) -> Columns:
    """Return the columns of a report as numpy arrays, checked.

    Args: canonical: in the order of their names, with one NaN and one zero, so that the same data is the same bytes
    however its sender wrote it down; else bit for bit and in the order in which they came.
    Errors: WireError naming the column: unknown, wrong dtype, wrong length, or a pair that lacks one.
    """
    layout = _layout(_known_names(report))
    n = _n_sequences(report.columns["n_tokens"])
    values: dict[str, Any] = {}
    for dtype, names in layout.by_dtype.items():
        matrix = _matrix([report.columns[name] for name in names], names=names, dtype=dtype, n=n)
        values.update(zip(names, _one_nan(matrix) if canonical else matrix, strict=True))
    _check_bits(report.accepted, n)
    return Columns(
        by_name={name: values[name] for name in (layout.sorted if canonical else layout.given)},
        histograms={pair: _unpack_histogram(pair, report.histograms[pair]) for pair in sorted(report.histograms)},
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )


def number(value: JsonNumber) -> float:
    """Return a wire number as a float: null is NaN."""
    return math.nan if value is None else float(value)


def _known_names(report: Report) -> tuple[str, ...]:
    """A newer client may send columns that are not known here: they are left out."""
    known = tuple(name for name in report.columns if name in COLUMNS)
    if len(known) < len(report.columns) and report.wire[1] <= WIRE_MINOR:
        unknown = next(name for name in report.columns if name not in COLUMNS)
        raise WireError(f"columns.{shown(unknown)}", "unknown column; this service knows wire version 1.0")
    return known


@lru_cache(REMEMBERED_LAYOUTS)
def _layout(given: tuple[str, ...]) -> _Layout:
    """Remembered, as all reports of a run have the same columns."""
    names = tuple(sorted(given))
    for needed in ("n_tokens", "n_invalid"):
        if needed not in names:
            raise WireError(f"columns.{needed}", "is required")
    _check_pairs(names)
    dtypes: tuple[DType, ...] = ("f8", "f4", "i8")
    return _Layout(
        given, names, {dtype: tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in dtypes}
    )


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


def _matrix(columns: list[WireColumn], *, names: tuple[str, ...], dtype: DType, n: int) -> Any:
    """Return columns of one dtype as [columns, n]."""
    n_bytes = n * int(dtype[1])
    packed = [c.data for c in columns if isinstance(c, PackedColumn) and c.dtype == dtype and len(c.data) == n_bytes]
    if len(packed) == len(columns):
        matrix = np.frombuffer(b"".join(packed), f"<{dtype}").reshape(len(columns), n)
    else:
        matrix = np.array(_arrays(columns, names=names, dtype=dtype, n=n), f"<{dtype}").reshape(len(columns), n)
    if dtype == "i8":
        _check_counts(matrix, names)
    return matrix


def _one_nan(matrix: Any) -> Any:
    if matrix.dtype.kind != "f":
        return matrix
    matrix = matrix + 0.0
    np.copyto(matrix, np.nan, where=np.isnan(matrix))
    return matrix


def _arrays(columns: list[WireColumn], *, names: tuple[str, ...], dtype: DType, n: int) -> list[Any]:
    """Return the columns one by one: lists of numbers among them, or something wrong, which is named."""
    arrays = []
    for name, column in zip(names, columns, strict=True):
        array = _array(f"columns.{name}", column, dtype)
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        arrays.append(array)
    return arrays


def _check_counts(matrix: Any, names: tuple[str, ...]) -> None:
    if (matrix < 0).any():
        for name, row in zip(names, matrix, strict=True):
            if name.startswith("n_") and (row < 0).any():
                raise WireError(f"columns.{name}", "counts must be zero or more")


def _check_bits(accepted: bytes | None, n: int) -> None:
    if accepted is not None and len(accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, and it has {len(accepted)}")


def _array(field: str, packed: WireColumn, dtype: DType) -> Any:
    if isinstance(packed, PackedColumn):
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
            return np.array([number(value) for value in packed], dtype=f"<{dtype}")
    except OverflowError as error:
        raise WireError(field, "holds a number too large for a float64") from error


def _unpack_histogram(pair: Pair, packed: WireColumn) -> Any:
    counts = _array(f"histograms.{pair}", packed, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, and has {len(counts)}")
    if (counts < 0).any():
        raise WireError(f"histograms.{pair}", "counts must be zero or more")
    return counts

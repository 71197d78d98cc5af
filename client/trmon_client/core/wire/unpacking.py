"""Columns from the wire, checked: those of one dtype are taken as one matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS, DType, Pair
from trmon_client.core.wire.blocks import Blocks
from trmon_client.core.wire.errors import WireError, shown
from trmon_client.core.wire.messages import WIRE_MINOR, JsonNumber, PackedColumn, Report, WireColumn

MAX_SEQUENCES = 1 << 20
REMEMBERED_LAYOUTS = 256


_DTYPES: tuple[DType, ...] = ("f8", "f4", "i8")
_dtype_of, _data_of = attrgetter("dtype"), attrgetter("data")


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of a report that are known here: as they came, and by dtype in the order of their names."""

    given: tuple[str, ...]
    by_dtype: Mapping[DType, tuple[str, ...]]


def unpack_columns(report: Report) -> Columns:
    """Return the columns of a report as numpy arrays, checked, bit for bit and in the order in which they came.

    Errors: WireError naming the column: unknown, wrong dtype, wrong length, or a pair that lacks one.
    """
    layout = _layout(_known_names(report))
    values = _by_name(layout.by_dtype, _matrices(report, layout))
    pairs = _pairs(report)
    return _columns(
        report, {name: values[name] for name in layout.given}, dict(zip(pairs, _histograms(report, pairs), strict=True))
    )


def unpack_blocks(report: Report) -> Blocks:
    """Return the columns of a report, checked, in their canonical form. Errors: as of `unpack_columns`."""
    layout = _layout(_known_names(report))
    matrices = {dtype: _one_nan(matrix) for dtype, matrix in _matrices(report, layout).items()}
    pairs = _pairs(report)
    return Blocks(layout.by_dtype, matrices, pairs, _histograms(report, pairs))


def columns_of(report: Report, blocks: Blocks) -> Columns:
    """Return the blocks of a report as its columns; nothing is copied."""
    histograms = dict(zip(blocks.pairs, blocks.histograms, strict=True))
    return _columns(report, _by_name(blocks.names, blocks.matrices), histograms)


def _columns(report: Report, values: dict[str, Any], histograms: dict[Pair, Any]) -> Columns:
    return Columns(
        by_name=values,
        histograms=histograms,
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )


def _by_name(names: Mapping[DType, tuple[str, ...]], matrices: Mapping[DType, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for dtype, rows in names.items():
        values.update(zip(rows, matrices[dtype], strict=True))
    return values


def number(value: JsonNumber) -> float:
    """Return a wire number as a float: null is NaN."""
    return math.nan if value is None else float(value)


def _known_names(report: Report) -> tuple[str, ...]:
    """A newer client may send columns that are not known here: they are left out."""
    known = tuple(filter(COLUMNS.__contains__, report.columns))
    if len(known) < len(report.columns) and report.wire[1] <= WIRE_MINOR:
        unknown = next(name for name in report.columns if name not in COLUMNS)
        raise WireError(f"columns.{shown(unknown)}", "unknown column; this service knows wire version 1.0")
    return known


@lru_cache(REMEMBERED_LAYOUTS)
def _layout(given: tuple[str, ...]) -> _Layout:
    """Remembered, as all reports of a run have the same columns."""
    names = sorted(given)
    for needed in ("n_tokens", "n_invalid"):
        if needed not in names:
            raise WireError(f"columns.{needed}", "is required")
    _check_pairs(names)
    return _Layout(given, {dtype: tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in _DTYPES})


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


def _matrices(report: Report, layout: _Layout) -> dict[DType, Any]:
    """Return all columns as [columns, n] a dtype."""
    n = _n_sequences(report.columns["n_tokens"])
    matrices = {dtype: _matrix(report.columns, names, dtype=dtype, n=n) for dtype, names in layout.by_dtype.items()}
    _check_counts(matrices["i8"], layout.by_dtype["i8"])
    _check_bits(report.accepted, n)
    return matrices


def _matrix(columns: Mapping[str, WireColumn], names: tuple[str, ...], *, dtype: DType, n: int) -> Any:
    """Return columns of one dtype as [columns, n]."""
    picked = [columns[name] for name in names]
    packed = _packed(picked, dtype=dtype, n=n)
    if packed is None:
        return np.array(_arrays(picked, names=names, dtype=dtype, n=n), f"<{dtype}").reshape(len(names), n)
    return packed


def _packed(columns: Sequence[WireColumn], *, dtype: DType, n: int) -> Any:
    """Return columns as [columns, n] by one copy; None where one is a list, or is not what it should be."""
    try:
        data = list(map(_data_of, columns))
    except AttributeError:
        return None
    if set(map(_dtype_of, columns)) <= {dtype} and set(map(len, data)) <= {n * int(dtype[1])}:
        return np.frombuffer(b"".join(data), f"<{dtype}").reshape(len(data), n)
    return None


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


def _pairs(report: Report) -> tuple[Pair, ...]:
    return tuple(sorted(report.histograms))


def _histograms(report: Report, pairs: tuple[Pair, ...]) -> Any:
    """Return the counts of these pairs as [pairs, N_BINS]."""
    given = [report.histograms[pair] for pair in pairs]
    counts = _packed(given, dtype="i8", n=N_BINS)
    if counts is None:
        counts = np.array([_histogram(pair, packed) for pair, packed in zip(pairs, given, strict=True)], "<i8")
    for pair, row in zip(pairs, counts, strict=True) if (counts < 0).any() else ():
        if (row < 0).any():
            raise WireError(f"histograms.{pair}", "counts must be zero or more")
    return counts


def _histogram(pair: Pair, packed: WireColumn) -> Any:
    counts = _array(f"histograms.{pair}", packed, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, and has {len(counts)}")
    return counts

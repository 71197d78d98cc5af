"""Columns and bits on the wire: packed by the client, unpacked and checked by the service."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trmon_client.core.columns import Columns
from trmon_client.core.schema import COLUMNS, N_BINS, PAIR_STEMS, PAIRS, DType, Pair
from trmon_client.core.wire.errors import WireError, shown
from trmon_client.core.wire.messages import WIRE_MINOR, JsonNumber, PackedColumn, Report, WireColumn

MAX_SEQUENCES = 1 << 20


def pack_columns(columns: Columns) -> dict[str, WireColumn]:
    """Return columns as little-endian bytes with a dtype each; columns must be numpy."""
    return {name: _pack(array, COLUMNS[name].dtype) for name, array in columns.items()}


def pack_histograms(columns: Columns) -> dict[Pair, WireColumn]:
    """Return the histograms of d as little-endian bytes; columns must be numpy."""
    return {pair: _pack(counts, "i8") for pair, counts in columns.histograms.items()}


def unpack_columns(report: Report) -> Columns:
    """Return the columns of a report as numpy arrays, checked.

    Errors: WireError naming the column: unknown, wrong dtype, wrong length, or a pair that lacks one.
    """
    newer = report.wire[1] > WIRE_MINOR
    values: dict[str, Any] = {}
    for name, packed in report.columns.items():
        spec = COLUMNS.get(name)
        if spec is not None:
            values[name] = _unpack(f"columns.{name}", packed, spec.dtype)
        elif not newer:
            raise WireError(f"columns.{shown(name)}", "unknown column; this service knows wire version 1.0")
    _check_columns(values)
    _check_bits(report.accepted, len(values["n_tokens"]))
    return Columns(
        by_name=values,
        histograms={pair: _unpack_histogram(pair, packed) for pair, packed in report.histograms.items()},
        kl_is=report.kl_is,
        kl_pair=report.kl_pair,
        trainer_version=report.trainer_version,
        old_version=report.old_version,
    )


def pack_bits(accepted: Any) -> bytes:
    """Return booleans [B] as bits, little-endian bit order."""
    return np.packbits(np.asarray(accepted, dtype=bool), bitorder="little").tobytes()


def unpack_bits(bits: bytes, n: int) -> Any:
    """Return the first n bits as booleans [n]."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=n).astype(bool)


def number(value: JsonNumber) -> float:
    """Return a wire number as a float: null is NaN."""
    return math.nan if value is None else float(value)


def _check_bits(accepted: bytes | None, n: int) -> None:
    if accepted is not None and len(accepted) != -(-n // 8):
        raise WireError("accepted", f"{n} sequences take {-(-n // 8)} bytes of bits, and it has {len(accepted)}")


def _check_columns(values: dict[str, Any]) -> None:
    for name in ("n_tokens", "n_invalid"):
        if name not in values:
            raise WireError(f"columns.{name}", "is required")
    n = len(values["n_tokens"])
    if n > MAX_SEQUENCES:
        raise WireError("columns.n_tokens", f"at most {MAX_SEQUENCES} sequences a report, and has {n}")
    for name, array in values.items():
        if len(array) != n:
            raise WireError(f"columns.{name}", f"has {len(array)} values where n_tokens has {n}")
        if name.startswith("n_") and (array < 0).any():
            raise WireError(f"columns.{name}", "counts must be zero or more")
    pairs = [pair for pair in PAIRS if f"{pair}_sum_d" in values]
    if not pairs:
        raise WireError("columns", "no pair: mismatch_, staleness_ or total_ columns are needed")
    for pair in pairs:
        for stem in PAIR_STEMS:
            if f"{pair}_{stem}" not in values:
                raise WireError(f"columns.{pair}_{stem}", f"is required beside {pair}_sum_d")


def _pack(array: Any, dtype: DType) -> PackedColumn:
    return PackedColumn(dtype, np.ascontiguousarray(array, dtype=f"<{dtype}").tobytes())


def _unpack(field: str, packed: WireColumn, dtype: DType) -> Any:
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
    counts = _unpack(f"histograms.{pair}", packed, "i8")
    if len(counts) != N_BINS:
        raise WireError(f"histograms.{pair}", f"must have {N_BINS} bins, and has {len(counts)}")
    if (counts < 0).any():
        raise WireError(f"histograms.{pair}", "counts must be zero or more")
    return counts

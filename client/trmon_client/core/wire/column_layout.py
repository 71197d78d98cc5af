"""The layout of the columns of a report: which ones it has, checked against the registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from trmon_client.core.arrays.dtypes import MAX_CACHED_LAYOUTS, DType
from trmon_client.core.columns.schema import COLUMNS, PAIR_STEMS, PAIRS, Reduction
from trmon_client.core.wire.column_blocks import DTYPES
from trmon_client.core.wire.errors import WireError, shorten_value
from trmon_client.core.wire.messages import WIRE_MAJOR, WIRE_MINOR


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

"""Columns: the sufficient statistics of a batch, one value for each sequence, with histograms of d."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, get_args

import numpy as np

from trmon_client.core.arrays.backend import Array as Array
from trmon_client.core.arrays.backend import functions_of, is_tensor
from trmon_client.core.arrays.device_transfer import Transfer
from trmon_client.core.arrays.dtypes import MAX_CACHED_LAYOUTS, DType
from trmon_client.core.arrays.row_matrix import RowMatrix
from trmon_client.core.columns.schema import COLUMNS, KL_IS_ORDER, PAIRS, KlIs, Pair, Reduction, primary
from trmon_client.core.columns.turn_columns import TurnColumns


@dataclass(frozen=True, eq=False)
class Columns(Mapping[str, Array]):
    """The columns of B sequences: a mapping of name to [B], with a histogram of d for each pair.

    `by_name` holds arrays of one kind, numpy or torch, in the dtypes of `schema.COLUMNS`; `histograms` holds
    [N_BINS] int64 counts by pair; `turns` is None if the trainer gave no turns. Source: formulas, section 3.
    """

    by_name: Mapping[str, Array]
    histograms: dict[Pair, Array] = field(default_factory=dict)
    kl_is: KlIs = "sampled"
    kl_pair: Pair | None = None
    trainer_version: int | None = None
    old_version: int | None = None
    turns: TurnColumns | None = None

    def __getitem__(self, name: str) -> Array:
        return self.by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def n_sequences(self) -> int:
        """B, the number of sequences, empty ones included."""
        return len(self.by_name["n_tokens"])

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The given pairs, in the order mismatch, staleness, total."""
        return tuple(pair for pair in PAIRS if f"{pair}_sum_d" in self.by_name)

    @cached_property
    def primary(self) -> Pair | None:
        """The pair that decisions and gauges read; None if fewer than two policies are given."""
        return primary(self.pairs) if self.pairs else None

    def numpy(self) -> Columns:
        """Return the columns as numpy arrays; from a device by one transfer, which is awaited."""
        return self.with_arrays(Transfer.begin(self.arrays).wait()) if is_tensor(self.by_name["n_tokens"]) else self

    @property
    def arrays(self) -> list[Array]:
        """The arrays of the columns, of the histograms, then of the turns, in order."""
        turns = () if self.turns is None else self.turns.by_name.values()
        return [*self.by_name.values(), *self.histograms.values(), *turns]

    def with_arrays(self, arrays: Sequence[Array]) -> Columns:
        """Return the columns with other arrays, in the order of `arrays`."""
        n, n_of_sequences = len(self), len(self) + len(self.histograms)
        return replace(
            self,
            by_name=dict(zip(self.by_name, arrays[:n], strict=True)),
            histograms=dict(zip(self.histograms, arrays[n:n_of_sequences], strict=True)),
            turns=None if self.turns is None else self.turns.with_arrays(arrays[n_of_sequences:]),
        )

    @staticmethod
    def merge(*parts: Columns) -> Columns:
        """Return the columns of all parts' sequences in order, histograms added; nothing is averaged.

        Rewards and advantages are kept if any part has them (NaN for the others); any other column, and the turns, only
        if all parts have them. `kl_is` is the weakest of the parts, `trainer_version` the newest, `old_version` the
        oldest.
        Args: parts: at least one, all numpy or all on one device.
        Errors: ValueError without parts.
        Source: formulas, section 3.
        """
        if not parts:
            raise ValueError("merge needs at least one part")
        if len(parts) == 1:
            return parts[0]
        first, *rest = parts
        return Columns(
            by_name=_concatenated(parts),
            histograms={
                pair: sum((part.histograms[pair] for part in rest), first.histograms[pair])
                for pair in PAIRS
                if all(pair in part.histograms for part in parts)
            },
            kl_is=max((part.kl_is for part in parts), key=KL_IS_ORDER.index),
            kl_pair=first.kl_pair if all(part.kl_pair == first.kl_pair for part in rest) else None,
            trainer_version=_extreme(max, [part.trainer_version for part in parts]),
            old_version=_extreme(min, [part.old_version for part in parts]),
            turns=_merged_turns(parts),
        )


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of merged parts in the order of the registry, and the same grouped by dtype."""

    names: tuple[str, ...]
    by_dtype: tuple[tuple[str, ...], ...]


@lru_cache(MAX_CACHED_LAYOUTS)
def _layout(given: frozenset[tuple[str, ...]]) -> _Layout:
    """Return the layout of merged parts; cached, because the ranks of a run have the same columns."""
    shared = set.intersection(*map(set, given))
    labels = {name for names in given for name in names if COLUMNS[name].reduction is Reduction.LABEL}
    names = tuple(name for name in COLUMNS if name in shared or name in labels)
    by_dtype = (tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in get_args(DType))
    return _Layout(names, tuple(filter(None, by_dtype)))


def _concatenated(parts: Sequence[Columns]) -> Mapping[str, Array]:
    """Concatenate the columns of each dtype as one array, which is faster than some 90 separate operations."""
    rows = [part.by_name for part in parts if isinstance(part.by_name, RowMatrix)]
    if len(rows) == len(parts) and len({matrix.names for matrix in rows}) == 1:
        return RowMatrix.merge(rows)
    given = frozenset(tuple(part.by_name) for part in parts)
    layout = _layout(given)
    values = [part.by_name if len(given) == 1 else _with_missing_labels(part, layout.names) for part in parts]
    concatenate = functions_of(values[0]["n_tokens"]).concatenate
    merged: dict[str, Array] = {}
    for names in layout.by_dtype:
        joined = concatenate([by_name[name] for name in names for by_name in values])
        merged.update(zip(names, joined.reshape(len(names), -1), strict=True))
    return {name: merged[name] for name in layout.names}


def _merged_turns(parts: Sequence[Columns]) -> TurnColumns | None:
    turns = [part.turns for part in parts if part.turns is not None]
    return TurnColumns.merge(*turns) if len(turns) == len(parts) else None


def _with_missing_labels(part: Columns, names: Sequence[str]) -> Mapping[str, Array]:
    n_tokens = part.by_name["n_tokens"]
    missing = n_tokens.double() * np.nan if is_tensor(n_tokens) else np.full(len(n_tokens), np.nan)
    return {name: part.by_name.get(name, missing) for name in names}


def _extreme(pick: Any, versions: list[int | None]) -> int | None:
    known = [version for version in versions if version is not None]
    return pick(known) if known else None

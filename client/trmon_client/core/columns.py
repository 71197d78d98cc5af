"""Columns: the sufficient statistics of a batch, one value for each sequence and turn, and the histograms of d."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import get_args

import numpy as np

from trmon_client.core.arrays import (
    MAX_CACHED_LAYOUTS,
    Array,
    Device,
    DType,
    RowMatrix,
    Transfer,
    functions_of,
    is_tensor,
    to_computable,
)
from trmon_client.core.column_schema import (
    COLUMNS,
    HISTOGRAM_EDGES,
    KL_IS_ORDER,
    N_BINS,
    PAIRS,
    KlIs,
    Pair,
    Reduction,
    primary,
)

EDGES = np.array(HISTOGRAM_EDGES)
# A float32 is below an edge exactly if it is below the smallest float32 that is not below the edge.
_ROUNDED_EDGES = EDGES.astype(np.float32)
FLOAT32_EDGES = np.where(_ROUNDED_EDGES < EDGES, np.nextafter(_ROUNDED_EDGES, np.float32(np.inf)), _ROUNDED_EDGES)
ZERO_BIN = N_BINS // 2
SORT_SIZE = 1 << 15
"""Tokens that are sorted at a time; larger pieces cost more than the saved searches for edges."""


def histograms(d: Array, *, valid: Array) -> Array:
    """Return the counts [pairs, N_BINS] int64 of valid tokens; a bin holds edge_i <= d < edge_(i+1).

    Args: d: [pairs, ...] float64 or float32, 0 where not valid; valid: bool [...].
    Source: formulas, section 3.
    """
    rows = d.reshape(len(d), -1)
    counts: Array
    if is_tensor(d):
        import torch

        bins = torch.bucketize(rows, edges_on(d.device), right=True)
        bins += torch.arange(0, len(d) * N_BINS, N_BINS, device=d.device)[:, None]
        # torch.bincount would synchronise to learn its length.
        zeros = torch.zeros(len(d) * N_BINS, dtype=torch.int64, device=d.device)
        counts = zeros.scatter_add_(0, bins.flatten(), torch.ones_like(bins).flatten()).reshape(len(d), N_BINS)
    else:
        # numpy sorts with vector instructions, which is faster than a table lookup for each token.
        ends = [np.searchsorted(row, EDGES) for row in np.sort(rows)]
        counts = np.diff(ends, prepend=0, append=rows.shape[1])
    counts[:, ZERO_BIN] -= (~valid).sum()
    return counts


def histogram_in_place(d: Array, *, n_absent: int) -> Array:
    """Return the counts [N_BINS] int64 of float32 tokens on the host.

    Args: d: contiguous, of any shape; sorted piece by piece in place. n_absent: the number of tokens that are 0 because
    they are not valid, which are not counted.
    Source: formulas, section 3.
    """
    flat = d.reshape(-1)
    end = len(flat) - len(flat) % SORT_SIZE
    pieces = flat[:end].reshape(-1, SORT_SIZE)
    pieces.sort()
    flat[end:].sort()
    ends = np.zeros(N_BINS + 1, np.int64)
    for piece in (*pieces, flat[end:]):
        ends[1:-1] += np.searchsorted(piece, FLOAT32_EDGES)
    ends[-1] = len(flat)
    counts: Array = ends[1:] - ends[:-1]
    counts[ZERO_BIN] -= n_absent
    return counts


@cache
def edges_on(device: Device, *, is_single: bool = False) -> Array:
    """Return the edges as a tensor on a device of torch; is_single: those of float32 log-ratios, in float32."""
    import torch

    edges = FLOAT32_EDGES if is_single else EDGES
    return torch.from_numpy(edges) if device.type == "cpu" else to_computable(edges, device)


_ABS_EDGES: list[float] = [0.0, *EDGES[EDGES > 0].tolist()]
_OVERFLOW = len(_ABS_EDGES) - 1


def percentile(values: Array, fraction: float) -> Array:
    """Return the quantile along the last axis, interpolated linearly.

    Args: values: [..., N], N >= 1; fraction: in [0, 1].
    Source: formulas, sections 3 and 5.
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def quantile_of_sorted(ordered: Array, fraction: float) -> float:
    """Return the quantile of sorted values, as `percentile` does; Python numbers are faster. Args: ordered: [N]."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    value = ordered.item(below)
    if position > below:
        value += (position - below) * (ordered.item(below + 1) - value)
    return float(value)


def abs_quantiles(counts: Array, fractions: Sequence[float], *, largest: Array) -> list[list[float]]:
    """Return quantiles of |d| in nats for each histogram of d, interpolated linearly between tokens.

    Tokens are assumed to be spread evenly within their bin, which is 26% wide; the overflow bin ends at `largest`.
    Args: counts: [P, N_BINS]; fractions: each in [0, 1]; largest: the largest |d|, [P].
    Returns: a row for each histogram with a value for each fraction; nan for an empty histogram.
    Source: formulas, sections 3 and 5.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    # Python numbers from here on, which are faster than arrays for a few values.
    rows = zip(np.add.accumulate(folded, 1).tolist(), largest.tolist(), strict=True)
    return [[_abs_quantile(cumulative, top, fraction) for fraction in fractions] for cumulative, top in rows]


def _abs_quantile(cumulative: list[float], largest: float, fraction: float) -> float:
    """Args: cumulative: the number of tokens with |d| up to the end of each bin."""
    last = cumulative[-1] - 1
    if last < 0:
        return math.nan
    position = fraction * last
    rank = math.floor(position)
    below, above = (_abs_value_at(at, cumulative, largest) for at in (rank, min(rank + 1, last)))
    return below + (position - rank) * (above - below)


def _abs_value_at(rank: float, cumulative: list[float], largest: float) -> float:
    """Return |d| of the token at a rank, counted from 0; the last is the largest."""
    if rank == cumulative[-1] - 1:
        return largest
    bin_ = min(bisect_right(cumulative, rank), _OVERFLOW)
    before = cumulative[bin_ - 1] if bin_ else 0.0
    high = largest if bin_ == _OVERFLOW else _ABS_EDGES[bin_ + 1]
    share = (rank - before + 0.5) / (cumulative[bin_] - before)
    return min(_ABS_EDGES[bin_] + share * (high - _ABS_EDGES[bin_]), largest)


@dataclass(frozen=True, eq=False)
class TurnColumns:
    """The columns of the R turns of B sequences: those of the first sequence in order, then those of the next.

    `n_turns` holds the number of turns of each sequence, numpy int64 [B]; `by_name` holds arrays [R] of one kind, numpy
    or torch, in the dtypes of `column_schema.TURN_COLUMNS`. A turn without valid tokens holds the identities of
    the reductions. Source: formulas, section 3.
    """

    n_turns: Array
    by_name: Mapping[str, Array]

    @property
    def n_tokens(self) -> Array:
        """The number of valid tokens of each turn, int64 [R]."""
        return self.by_name["n_tokens"]

    def of_pair(self, pair: Pair, stem: str) -> Array:
        """Return a column of a pair, [R] float64."""
        column = self.by_name[f"{pair}_{stem}"]
        return functions_of(column).cast(column, "f8")

    @cached_property
    def sequences(self) -> Array:
        """The sequence of each turn, numpy int64 [R]."""
        return np.repeat(np.arange(len(self.n_turns)), self.n_turns)

    @cached_property
    def ends(self) -> Array:
        """Where the turns of each sequence end, numpy int64 [B]; each begins where the one before ends."""
        return np.cumsum(self.n_turns)

    @staticmethod
    def merge(*parts: TurnColumns) -> TurnColumns:
        """Return the turns of all parts' sequences in order; columns are kept only if all parts have them.

        Args: parts: at least one, all numpy or all on one device.
        """
        first, *rest = parts
        names = [name for name in first.by_name if all(name in part.by_name for part in rest)]
        concatenate = functions_of(first.n_tokens).concatenate
        return TurnColumns(
            np.concatenate([part.n_turns for part in parts]),
            {name: concatenate([part.by_name[name] for part in parts]) for name in names},
        )


@dataclass(frozen=True, eq=False)
class Columns(Mapping[str, Array]):
    """The columns of B sequences: a mapping of name to [B], with a histogram of d for each pair.

    `by_name` holds arrays of one kind, numpy or torch, in the dtypes of `column_schema.COLUMNS`; `histograms` holds
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
        of_turns = arrays[n_of_sequences:]
        return replace(
            self,
            by_name=dict(zip(self.by_name, arrays[:n], strict=True)),
            histograms=dict(zip(self.histograms, arrays[n:n_of_sequences], strict=True)),
            turns=self.turns and replace(self.turns, by_name=dict(zip(self.turns.by_name, of_turns, strict=True))),
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
        versions = [version for part in parts if (version := part.trainer_version) is not None]
        old_versions = [version for part in parts if (version := part.old_version) is not None]
        turns = [part.turns for part in parts if part.turns is not None]
        return Columns(
            by_name=_concatenated(parts),
            histograms={
                pair: sum((part.histograms[pair] for part in rest), first.histograms[pair])
                for pair in PAIRS
                if all(pair in part.histograms for part in parts)
            },
            kl_is=max((part.kl_is for part in parts), key=KL_IS_ORDER.index),
            kl_pair=first.kl_pair if all(part.kl_pair == first.kl_pair for part in rest) else None,
            trainer_version=max(versions, default=None),
            old_version=min(old_versions, default=None),
            turns=TurnColumns.merge(*turns) if len(turns) == len(parts) else None,
        )


@lru_cache(MAX_CACHED_LAYOUTS)
def _layout(given: frozenset[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the columns of merged parts in the order of the registry, and the same grouped by dtype.

    Cached, because the ranks of a run have the same columns.
    """
    shared = set.intersection(*map(set, given))
    labels = {name for names in given for name in names if COLUMNS[name].reduction is Reduction.LABEL}
    names = tuple(name for name in COLUMNS if name in shared or name in labels)
    by_dtype = (tuple(name for name in names if COLUMNS[name].dtype == dtype) for dtype in get_args(DType))
    return names, tuple(filter(None, by_dtype))


def _concatenated(parts: Sequence[Columns]) -> Mapping[str, Array]:
    """Concatenate the columns of each dtype as one array, which is faster than some 90 separate operations."""
    rows = [part.by_name for part in parts if isinstance(part.by_name, RowMatrix)]
    if len(rows) == len(parts) and len({matrix.names for matrix in rows}) == 1:
        return RowMatrix.merge(rows)
    given = frozenset(tuple(part.by_name) for part in parts)
    all_names, by_dtype = _layout(given)
    values = [part.by_name if len(given) == 1 else _with_missing_labels(part, all_names) for part in parts]
    concatenate = functions_of(values[0]["n_tokens"]).concatenate
    merged: dict[str, Array] = {}
    for names in by_dtype:
        joined = concatenate([by_name[name] for name in names for by_name in values])
        merged.update(zip(names, joined.reshape(len(names), -1), strict=True))
    return {name: merged[name] for name in all_names}


def _with_missing_labels(part: Columns, names: Sequence[str]) -> Mapping[str, Array]:
    n_tokens = part.by_name["n_tokens"]
    missing = n_tokens.double() * np.nan if is_tensor(n_tokens) else np.full(len(n_tokens), np.nan)
    return {name: part.by_name.get(name, missing) for name in names}


@dataclass(frozen=True)
class SequenceMatrix:
    """The N sequences with at least one valid token, over which means are taken.

    A batch without a valid token becomes one sequence of NaN, so that every signal is NaN without a special case.
    `rows` is a bool mask of the sequences in the batch; None selects all. `values` holds every column, [columns, N]
    float64; labels that are hashes lose precision there.
    """

    columns: Columns
    rows: Array | None
    values: Array

    @classmethod
    def of(cls, columns: Columns) -> SequenceMatrix:
        """Return the sequences of numpy columns. Source: formulas, section 2."""
        by_name = columns.by_name
        values = by_name.float64() if isinstance(by_name, RowMatrix) else np.array(list(by_name.values()), np.float64)
        rows = columns["n_tokens"] > 0
        if len(rows) and rows.all():
            return cls(columns, None, values)
        return cls(columns, rows, values.compress(rows, 1) if rows.any() else np.full((len(columns), 1), np.nan))

    @property
    def is_empty(self) -> bool:
        """Whether the batch has no valid token."""
        return self.rows is not None and not self.rows.any()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the rows of `values`."""
        return tuple(self.columns)

    @cached_property
    def lengths(self) -> Array:
        """The number of valid tokens of each sequence, [N]."""
        return self.of_column("n_tokens")

    @cached_property
    def totals(self) -> Array:
        """The sum of each column, in the order of `names`."""
        return np.add.reduce(self.values, -1)

    @cached_property
    def sums(self) -> dict[str, float]:
        """The sum of each column by name."""
        return dict(zip(self.names, self.totals.tolist(), strict=True))

    def of_column(self, name: str) -> Array:
        """Return one column, [N] float64."""
        return self.values[column_rows(self.names)[name]]

    def matrix(self, names: Sequence[str]) -> Array:
        """Return the named columns as [len(names), N] float64."""
        row_of = column_rows(self.names)
        return self.values[[row_of[name] for name in names]]

    def labels(self, name: str) -> Array:
        """Return an integer column without conversion, [N]: float64 cannot hold labels that are hashes."""
        if self.is_empty:
            return np.zeros(1, np.int64)
        return self.columns[name] if self.rows is None else self.columns[name][self.rows]


@lru_cache(MAX_CACHED_LAYOUTS)
def column_rows(names: tuple[str, ...]) -> dict[str, int]:
    """Return the row of each column; cached, because all batches of a run have the same columns."""
    return {name: row for row, name in enumerate(names)}

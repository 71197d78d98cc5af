"""Columns: the sufficient statistics of a batch, one value for each sequence and turn; also as one float64 matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import get_args

import numpy as np

from trmon_client.core.arrays import MAX_CACHED_LAYOUTS, Array, DType, RowMatrix, Transfer, functions_of, is_tensor
from trmon_client.core.column_schema import COLUMNS, KL_IS_ORDER, PAIRS, KlIs, Pair, Reduction, primary


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

"""Turn columns: the sufficient statistics of each turn of a batch's sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.columns.schema import Pair


@dataclass(frozen=True, eq=False)
class TurnColumns:
    """The columns of the R turns of B sequences: those of the first sequence in order, then those of the next.

    `n_turns` holds the number of turns of each sequence, numpy int64 [B]; `by_name` holds arrays [R] of one kind, numpy
    or torch, in the dtypes of `schema.TURN_COLUMNS`. A turn without valid tokens holds the reductions' identities.
    Source: formulas, section 3.
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

    def with_arrays(self, arrays: Sequence[Array]) -> TurnColumns:
        """Return the columns with other arrays, in the order of `by_name`."""
        return replace(self, by_name=dict(zip(self.by_name, arrays, strict=True)))

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

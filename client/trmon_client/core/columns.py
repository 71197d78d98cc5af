"""Columns: the sufficient statistics of a batch, one value a sequence, and the histograms beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trmon_client.core.schema import COLUMNS, KL_IS_ORDER, PAIRS, KlIs, Pair, Reduction, primary

Array = Any
"""A numpy array or a torch tensor."""


@dataclass(frozen=True, eq=False)
class Columns(Mapping[str, Array]):
    """The columns of B sequences: a mapping of name to [B], with a histogram of d for each pair.

    `values` holds arrays of one kind, numpy or torch, in the dtypes of `schema.COLUMNS`; `histograms` holds
    [N_BINS] int64 counts a pair. Source: formulas, section 3.
    """

    values: dict[str, Array]
    histograms: dict[Pair, Array] = field(default_factory=dict)
    kl_is: KlIs = "sampled"
    kl_pair: Pair | None = None
    trainer_version: int | None = None
    old_version: int | None = None

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_sequences(self) -> int:
        """B, the number of sequences, empty ones included."""
        return len(self.values["n_tokens"])

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that were given, in the order mismatch, staleness, total."""
        return tuple(pair for pair in PAIRS if f"{pair}_sum_d" in self.values)

    @property
    def primary(self) -> Pair:
        """The pair that decisions and gauges read."""
        return primary(self.pairs)

    def numpy(self) -> Columns:
        """Return the same columns as numpy arrays; synchronises if they lie on a device."""
        return replace(
            self,
            values={name: _to_numpy(array) for name, array in self.values.items()},
            histograms={pair: _to_numpy(counts) for pair, counts in self.histograms.items()},
        )

    @staticmethod
    def merge(*parts: Columns) -> Columns:
        """Return the columns of all parts' sequences in order, histograms added; nothing is averaged.

        A column that only some parts have is kept for rewards and advantages (NaN where absent) and left out
        otherwise; `kl_is` is the weakest part's, versions are the newest trainer's and the oldest pi_old's.
        Args: parts: at least one, all numpy.
        Errors: ValueError without parts.
        Source: formulas, section 3.
        """
        if not parts:
            raise ValueError("merge needs at least one part")
        if len(parts) == 1:
            return parts[0]
        first, *rest = parts
        shared = {name for name in first.values if all(name in part.values for part in rest)}
        labels = {name for part in parts for name in part.values if COLUMNS[name].reduction is Reduction.LABEL}
        names = [name for name in COLUMNS if name in shared or name in labels]
        return Columns(
            values={name: np.concatenate([_column(part, name) for part in parts]) for name in names},
            histograms={
                pair: np.sum([part.histograms[pair] for part in parts], axis=0)
                for pair in PAIRS
                if all(pair in part.histograms for part in parts)
            },
            kl_is=max((part.kl_is for part in parts), key=KL_IS_ORDER.index),
            kl_pair=first.kl_pair if all(part.kl_pair == first.kl_pair for part in rest) else None,
            trainer_version=_extreme(max, [part.trainer_version for part in parts]),
            old_version=_extreme(min, [part.old_version for part in parts]),
        )


def _column(part: Columns, name: str) -> Array:
    if name in part.values:
        return part.values[name]
    return np.full(part.n_sequences, np.nan)


def _extreme(pick: Any, versions: list[int | None]) -> int | None:
    known = [version for version in versions if version is not None]
    return pick(known) if known else None


def _to_numpy(array: Array) -> Array:
    return array if isinstance(array, np.ndarray) else array.detach().cpu().numpy()

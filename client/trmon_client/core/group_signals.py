"""Signals over groups: the responses that share a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns import Array
from trmon_client.core.sequences import Sequences


@dataclass(frozen=True, slots=True)
class _Groups:
    """Where each group of two or more starts and how many it has, once values are taken in `order`."""

    order: Array
    starts: Array
    sizes: Array
    is_group: Array

    @classmethod
    def of(cls, ids: Array) -> _Groups:
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(starts, len(ids)))
        return cls(order, starts, sizes, sizes > 1)

    def mean_of(self, statistic: Array) -> float:
        """Return the mean over groups of two or more; nan without any."""
        return float(statistic[self.is_group].sum() / np.float64(self.is_group.sum()))


def group_signals(sequences: Sequences) -> dict[str, float]:
    """Return the signals that need group ids; those whose other inputs are not given are absent.

    Source: formulas, section 5.
    """
    if "group_id" not in sequences.columns:
        return {}
    ids = sequences.labels("group_id")
    signals = {"group_ratio_variance": _ratio_variance(sequences, ids)}
    if "reward" in sequences.columns:
        signals["zero_variance_groups"] = _zero_variance(sequences.matrix(("reward",))[0], ids)
    return signals


def _zero_variance(rewards: Array, ids: Array) -> float:
    """Sequences without a reward (NaN) leave their group; a batch may have rewards on some ranks only."""
    given = ~np.isnan(rewards)
    if not given.any():
        return float("nan")
    groups = _Groups.of(ids[given])
    ordered = rewards[given][groups.order]
    lowest = np.minimum.reduceat(ordered, groups.starts)
    highest = np.maximum.reduceat(ordered, groups.starts)
    return groups.mean_of(lowest == highest)


def _ratio_variance(sequences: Sequences, ids: Array) -> float:
    """Mean over groups of the variance of exp(S/T) on the primary pair: how unevenly a prompt's responses weigh."""
    geo = np.exp(sequences.matrix((f"{sequences.columns.primary}_sum_d",))[0] / sequences.lengths)
    groups = _Groups.of(ids)
    ordered = geo[groups.order]
    means = np.add.reduceat(ordered, groups.starts) / groups.sizes
    deviations = ordered - np.repeat(means, groups.sizes)
    return groups.mean_of(np.add.reduceat(deviations * deviations, groups.starts) / groups.sizes)

"""Computes signals over groups, the responses that share a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.sequence_matrix import SequenceMatrix


@dataclass(frozen=True, slots=True)
class _Groups:
    """The start and size of each group when sequences are sorted by `order`; `is_group` marks sizes above 1."""

    order: Array
    starts: Array
    sizes: Array
    is_group: Array

    @classmethod
    def of(cls, ids: Array) -> _Groups:
        order = ids.argsort(kind="stable")
        ordered = ids[order]
        begins = np.empty(len(ids), bool)
        begins[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
        (starts,) = begins.nonzero()
        ends = np.append(starts[1:], len(ids))
        sizes = ends - starts
        return cls(order, starts, sizes, sizes > 1)

    def mean_of(self, statistic: Array) -> float:
        """Return the mean over groups of two or more; nan if there is none."""
        return float(np.add.reduce(statistic[self.is_group]) / np.float64(np.count_nonzero(self.is_group)))


def group_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals that require group ids; a signal is absent if another input is not given.

    Source: formulas, section 5.
    """
    if "group_id" not in sequences.columns:
        return {}
    ids = sequences.labels("group_id")
    groups = _Groups.of(ids)
    signals = {"group_ratio_variance": _ratio_variance(sequences, groups)}
    if "reward" in sequences.columns:
        signals["zero_variance_groups"] = _zero_variance(sequences.of_column("reward"), ids, groups)
    return signals


def _zero_variance(rewards: Array, ids: Array, groups: _Groups) -> float:
    """Return the fraction of groups with equal rewards, without sequences whose reward is missing (NaN)."""
    missing = np.isnan(rewards)
    if missing.any():
        rewards = rewards[~missing]
        if not len(rewards):
            return float("nan")
        groups = _Groups.of(ids[~missing])
    ordered = rewards[groups.order]
    lowest = np.minimum.reduceat(ordered, groups.starts)
    highest = np.maximum.reduceat(ordered, groups.starts)
    return groups.mean_of(lowest == highest)


def _ratio_variance(sequences: SequenceMatrix, groups: _Groups) -> float:
    """Return the mean over groups of the variance of exp(S/T) on the primary pair."""
    geo = np.exp(sequences.of_column(f"{sequences.columns.primary}_sum_d") / sequences.lengths)
    ordered = geo[groups.order]
    means = np.add.reduceat(ordered, groups.starts) / groups.sizes
    deviations = ordered - means.repeat(groups.sizes)
    return groups.mean_of(np.add.reduceat(deviations * deviations, groups.starts) / groups.sizes)

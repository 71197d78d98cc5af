"""Computes signals over groups, the responses that share a prompt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.sequence_matrix import SequenceMatrix
from trmon_client.core.signals.reward_signals import EQUAL_WITHIN, rounding_of


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

    def means_of(self, *statistics: Array) -> list[float]:
        """Return the mean of each statistic over groups of two or more; nan if there is none."""
        counted = np.array(statistics, np.float64).compress(self.is_group, -1)
        means: list[float] = (np.add.reduce(counted, -1) / np.float64(counted.shape[-1])).tolist()
        return means


def group_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals that require group ids; a signal is absent if another input is not given.

    Source: formulas, section 5.
    """
    if "group_id" not in sequences.columns:
        return {}
    ids = sequences.labels("group_id")
    groups = _Groups.of(ids)
    signals: dict[str, float] = {}
    if sequences.columns.primary is not None:
        signals["group_ratio_variance"] = _ratio_variance(sequences, groups)
    if "reward" in sequences.columns:
        signals |= _learning_signals(sequences.of_column("reward"), ids, groups)
    return signals


def _learning_signals(rewards: Array, ids: Array, groups: _Groups) -> dict[str, float]:
    """Return what the rewards of a group teach, without sequences whose reward is missing (NaN)."""
    missing = np.isnan(rewards)
    if missing.any():
        rewards = rewards[~missing]
        if not len(rewards):
            return dict.fromkeys(_LEARNING_SIGNALS, math.nan)
        groups = _Groups.of(ids[~missing])
    ordered = rewards[groups.order]
    lowest, highest = (reduce.reduceat(ordered, groups.starts) for reduce in (np.minimum, np.maximum))
    is_equal = highest - lowest <= EQUAL_WITHIN * np.maximum(1.0, np.maximum(np.abs(lowest), np.abs(highest)))
    _, sq_deviations = _moments(ordered, groups)
    found = (is_equal, *_solved(ordered, lowest, highest), sq_deviations / (groups.sizes - 1.0))
    return dict(zip(_LEARNING_SIGNALS, groups.means_of(*found), strict=True))


_LEARNING_SIGNALS = ("zero_variance_groups", "all_solved_groups", "none_solved_groups", "effective_signal")


def _solved(rewards: Array, lowest: Array, highest: Array) -> tuple[Array, Array]:
    """Return whether all responses of a group have the better of the batch's two rewards, and whether none has it.

    NaN unless the rewards take exactly two values: a single value does not tell which of the two it is.
    Args: rewards: of the batch; lowest, highest: of each group.
    """
    worst, best = float(np.minimum.reduce(lowest)), float(np.maximum.reduce(highest))
    within = rounding_of(worst, best)
    if best - worst <= within or not (np.minimum(rewards - worst, best - rewards) <= within).all():
        unknown = np.full(len(lowest), math.nan)
        return unknown, unknown
    return best - lowest <= within, highest - worst <= within


def _moments(ordered: Array, groups: _Groups) -> tuple[Array, Array]:
    """Return the mean of each group, and its sum of squared deviations from it."""
    means = np.add.reduceat(ordered, groups.starts) / groups.sizes
    deviations = ordered - means.repeat(groups.sizes)
    return means, np.add.reduceat(deviations * deviations, groups.starts)


def _ratio_variance(sequences: SequenceMatrix, groups: _Groups) -> float:
    """Return the mean over groups of the variance of exp(S/T) on the primary pair."""
    geo = np.exp(sequences.of_column(f"{sequences.columns.primary}_sum_d") / sequences.lengths)
    ordered = geo[groups.order]
    [mean] = groups.means_of(_moments(ordered, groups)[1] / groups.sizes)
    return mean

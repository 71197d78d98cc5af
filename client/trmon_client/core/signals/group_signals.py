"""Computes the signals of rewards, of groups (the responses that share a prompt) and of response lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.column_schema import REPETITION_STEMS
from trmon_client.core.columns import SequenceMatrix, quantile_of_sorted
from trmon_client.core.inputs.labels import FINISH_REASONS
from trmon_client.core.reduction.sequences import SUM_LOGP
from trmon_client.core.reduction.token_terms import clipped_pair

EQUAL_WITHIN = 1e-9
"""Rewards are equal up to this, relative to the largest magnitude where it is above 1."""

_QUANTILES = {
    "reward_min": 0.0,
    "reward_q01": 0.01,
    "reward_q05": 0.05,
    "reward_q25": 0.25,
    "reward_median": 0.5,
    "reward_q75": 0.75,
    "reward_q95": 0.95,
    "reward_q99": 0.99,
    "reward_max": 1.0,
}


def reward_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the moments and quantiles of the rewards, and their correlation with the length; NaN rewards are left out.

    Source: formulas, sections 5 and 10.
    """
    if "reward" not in sequences.columns:
        return {}
    rewards, lengths = sequences.of_column("reward"), sequences.lengths
    found = {"reward_invalid_share": _invalid_share(sequences, rewards)}
    ordered = np.sort(rewards)
    if math.isnan(ordered[-1]):  # NaN sorts last
        is_given = ~np.isnan(rewards)
        rewards, lengths = rewards[is_given], lengths[is_given]
        ordered = ordered[: len(rewards)]
    n = len(rewards)
    if not n:
        return found | dict.fromkeys(("reward_mean", "reward_std", *_QUANTILES, "reward_length_corr"), math.nan)
    mean = float(np.add.reduce(rewards)) / n
    deviations = rewards - mean
    sum_sq = float(deviations @ deviations)
    lowest, highest = ordered.item(0), ordered.item(-1)
    is_constant = highest - lowest <= rounding_of(lowest, highest)
    return found | {
        "reward_mean": mean,
        "reward_std": math.sqrt(sum_sq / n),
        **{name: quantile_of_sorted(ordered, fraction) for name, fraction in _QUANTILES.items()},
        "reward_length_corr": math.nan if is_constant else _correlation(deviations, sum_sq, lengths),
    }


def advantage_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the extremes of the sequences' advantages; NaN advantages are left out. Source: formulas, section 5."""
    if "advantage" not in sequences.columns:
        return {}
    advantages = sequences.of_column("advantage")
    return {
        "advantage_max": float(np.fmax.reduce(advantages)),
        "advantage_min": float(np.fmin.reduce(advantages)),
        "advantage_invalid_share": _invalid_share(sequences, advantages),
    }


def signals_by_sign(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the entropy of the sampler and the mean ratio by the sign of the sequences' advantages; NaN without any.

    The entropy is estimated from samples of mu, else of pi_old, else of pi; the ratio is of the pair that PPO clips.
    Source: formulas, section 5.
    """
    names = sequences.columns
    if "advantage" not in names:
        return {}
    means: dict[str, tuple[Array, float, float]] = {}
    sampler = next((name for name in SUM_LOGP.values() if name in names), None)
    if sampler is not None:
        means["sampled_entropy"] = (sequences.of_column(sampler), -1.0, 0.0)
    if names.pairs:
        means["ratio_mean"] = (sequences.of_column(f"{clipped_pair(names.pairs)}_sum_ratio_dev"), 1.0, 1.0)
    advantages, lengths = sequences.of_column("advantage"), sequences.lengths
    found = {}
    for sign, chosen in (("positive", advantages > 0), ("negative", advantages < 0)):
        n = np.float64(lengths @ chosen)
        for stem, (sums, factor, offset) in means.items():
            found[f"{stem}_{sign}"] = float(factor * (np.add.reduce(sums[chosen]) / n) + offset)
    return found


def _invalid_share(sequences: SequenceMatrix, given: Array) -> float:
    """Return the share of sequences for which a number was given that is not finite."""
    return math.nan if sequences.is_empty else 1 - float(np.count_nonzero(np.isfinite(given)) / len(given))


def rounding_of(lowest: float, highest: float) -> float:
    """Return the largest difference between equal rewards, whose extremes are given."""
    return EQUAL_WITHIN * max(1.0, abs(lowest), abs(highest))


def _correlation(deviations: Array, sum_sq: float, lengths: Array) -> float:
    """Return Pearson's correlation of rewards and lengths; NaN if the lengths are constant.

    Args: deviations: of the rewards from their mean, [N]; sum_sq: the sum of their squares.
    """
    lengths = lengths - np.add.reduce(lengths) / len(lengths)
    product = sum_sq * float(lengths @ lengths)
    correlation = float(deviations @ lengths) / math.sqrt(product) if product else math.nan
    return min(max(correlation, -1.0), 1.0) if math.isfinite(correlation) else math.nan


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
    n_groups = math.nan if sequences.is_empty else float(len(groups.starts))
    signals = {"distinct_prompts": n_groups, "distinct_prompt_share": n_groups / len(ids)}
    if sequences.columns.primary is not None:
        # The mean over groups of the variance of exp(S/T) on the primary pair.
        geo = np.exp(sequences.of_column(f"{sequences.columns.primary}_sum_d") / sequences.lengths)
        ordered = geo[groups.order]
        [mean] = groups.means_of(_sq_deviations(ordered, groups) / groups.sizes)
        signals["group_ratio_variance"] = mean
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
    found = (is_equal, *_solved(ordered, lowest, highest), _sq_deviations(ordered, groups) / (groups.sizes - 1.0))
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


def _sq_deviations(ordered: Array, groups: _Groups) -> Array:
    """Return the sum of squared deviations of each group from its mean."""
    means = np.add.reduceat(ordered, groups.starts) / groups.sizes
    deviations = ordered - means.repeat(groups.sizes)
    return np.add.reduceat(deviations * deviations, groups.starts)


NEAR_CAP = 0.95
"""Lengths from this fraction of the largest one on are compared with those of exactly the largest."""


def length_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of response lengths, in valid tokens, and of how responses end and repeat themselves.

    Source: formulas, sections 5 and 10.
    """
    ordered = np.sort(sequences.lengths)
    return (
        _finish_shares(sequences)
        | _repetition(sequences)
        | {
            "response_length_mean": sequences.sums["n_tokens"] / len(ordered),
            "response_length_median": quantile_of_sorted(ordered, 0.5),
            "response_length_p95": quantile_of_sorted(ordered, 0.95),
            "response_length_max": quantile_of_sorted(ordered, 1.0),
            "length_limit_share": _share_at_limit(sequences),
        }
    )


def _share_at_limit(sequences: SequenceMatrix) -> float:
    """Return the share of truncated sequences where it or their finish reason is given, else of those at the cap."""
    columns = sequences.columns
    if "truncated" in columns:
        return _share_of_known(columns["truncated"], 1)
    if "finish_reason" in columns:
        return _share_of_known(columns["finish_reason"], FINISH_REASONS.index("length"))
    counted = columns["n_tokens"] + columns["n_invalid"]
    return float("nan") if sequences.is_empty else share_at_cap(counted[columns["n_tokens"] > 0])


def _share_of_known(labels: Array, label: int) -> float:
    """Return the share of a label among sequences that have one, also those whose tokens the trainer has masked."""
    n_known = np.float64(np.count_nonzero(labels >= 0))
    return float(np.count_nonzero(labels == label) / n_known)


def _finish_shares(sequences: SequenceMatrix) -> dict[str, float]:
    if "finish_reason" not in sequences.columns:
        return {}
    reasons = sequences.columns["finish_reason"]
    others = ("stop", "abort", "other")
    return {f"finish_{name}_share": _share_of_known(reasons, FINISH_REASONS.index(name)) for name in others}


def _repetition(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the share of 4-grams that occurred earlier in their response; NaN without a 4-gram."""
    if "n_four_grams" not in sequences.columns:
        return {}
    n_grams, n_repeated = (sequences.of_column(name) for name in REPETITION_STEMS)
    has_any = n_grams > 0
    shares = np.sort(n_repeated[has_any] / n_grams[has_any])
    return {
        "repeated_share": float(np.add.reduce(n_repeated) / np.add.reduce(n_grams)),
        "repeated_share_p95": quantile_of_sorted(shares, 0.95) if len(shares) else math.nan,
    }


def share_at_cap(lengths: Array) -> float:
    """Return the share of lengths at the cap: the largest one, where the lengths pile up there; 0 without a pile.

    A distribution that is cut off has more sequences at its largest length than just below it (within 5%), and at
    least two; the largest length of one that is not cut off is rare. Args: lengths: [N], N >= 1.
    """
    largest = lengths.max()
    n_at_cap = int(np.count_nonzero(lengths == largest))
    n_below = int(np.count_nonzero(lengths >= NEAR_CAP * largest)) - n_at_cap
    return n_at_cap / len(lengths) if n_at_cap >= 2 and n_at_cap > n_below else 0.0

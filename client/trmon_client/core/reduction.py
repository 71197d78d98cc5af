"""The reduction of one block of sequences: from the terms of its tokens to its columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.columns import Columns
from trmon_client.core.histogram import histograms
from trmon_client.core.inputs import POLICIES, Inputs
from trmon_client.core.ratios import MAX_ABS_EXPONENT, Ratios
from trmon_client.core.schema import COLUMNS, PAIR_STEMS, PAIRS, DType, Pair, primary
from trmon_client.core.tokens import Tokens, arranged

SATURATED_BELOW = float(np.log(0.99))
"""A token that mu is certain of and the trainer gives less than this is saturated."""
BAND_LOW, BAND_HIGH, TRUNCATION = 0.5, 5.0, 2.0
"""The ratios beyond which IcePop drops and TIS truncates."""

SUM_LOGP = dict(zip(POLICIES, ("sum_logp_rollout", "sum_logp_old", "sum_logp"), strict=True))
DTYPES = {stem: COLUMNS[f"{PAIRS[0]}_{stem}"].dtype for stem in PAIR_STEMS}
NAMES: dict[Pair, dict[str, str]] = {pair: {stem: f"{pair}_{stem}" for stem in PAIR_STEMS} for pair in PAIRS}


def reduced(inputs: Inputs, *, clip_low: float, clip_high: float, dtype: DType = "f8") -> Columns:
    """Return the columns and histograms of one block.

    Args: clip_low, clip_high: PPO clips rho to [1 - clip_low, 1 + clip_high]; dtype: of the terms of its tokens.
    Source: formulas, section 3.
    """
    tokens = Tokens.of(inputs, dtype=dtype)
    ratios = Ratios.of(tokens)
    by_stem = _pair_columns(tokens, ratios)
    sequence = _sequence_columns(tokens, ratios)
    if inputs.advantages is not None:
        sequence |= _clip_columns(inputs.advantages, tokens, ratios, clip_low=clip_low, clip_high=clip_high)
    values: dict[str, Array] = {}
    for row, pair in enumerate(ratios.pairs):
        values |= {name: by_stem[stem][row] for stem, name in NAMES[pair].items()}
    values |= {name: tokens.xp.cast(array, COLUMNS[name].dtype) for name, array in sequence.items()}
    values |= _labels(inputs, tokens)
    counts = histograms(ratios.d, valid=tokens.valid)
    return Columns(values, dict(zip(ratios.pairs, counts, strict=True)))


def _pair_columns(tokens: Tokens, ratios: Ratios) -> dict[str, Array]:
    """Return the columns of all pairs by stem, [pairs, B]."""
    xp, d, dev = tokens.xp, ratios.d, tokens.xp.cast(ratios.dev, tokens.dtype)
    sum_, max_, count = (partial(function, axis=tokens.axis) for function in (xp.sum, xp.max, xp.count))
    dot = partial(xp.sum_product, axis=tokens.axis)
    p, q = ratios.p, ratios.q
    prob_diff = xp.abs(p - q)
    truncated = xp.at_most(dev, TRUNCATION - 1.0) + tokens.weight
    # 0 where valid, else infinite: moves tokens out of the way of extremes.
    away = 1.0 / tokens.weight - 1.0
    # The same for sequences, for terms that are never negative: they are 0 where not valid.
    empty = 1.0 / max_(tokens.weight) - 1.0
    prefix = xp.running_sum(d, tokens.axis)
    found = {
        "sum_d": sum_(d),
        "sum_abs_d": sum_(xp.abs(d)),
        "sum_sq_d": dot(d, d),
        "min_d": xp.min(d + away, tokens.axis),
        "max_d": max_(d - away),
        "sum_ratio_dev": sum_(dev),
        "sum_sq_ratio_dev": dot(dev, dev),
        "sum_ratio_deficit": sum_(xp.at_least(-dev, 0.0)),
        "sum_k3": sum_(ratios.k3),
        "max_k3": max_(ratios.k3) - empty,
        "n_band_low": count(dev < BAND_LOW - 1.0),
        "n_band_high": count(dev > BAND_HIGH - 1.0),
        "n_trunc": count(dev > TRUNCATION - 1.0),
        "sum_trunc_ratio": sum_(truncated),
        "sum_sq_trunc_ratio": dot(truncated, truncated),
        "max_prob_diff": max_(prob_diff) - empty,
        "sum_prob_diff": sum_(prob_diff),
        "sum_sq_prob_diff": dot(prob_diff, prob_diff),
        "sum_p": sum_(p),
        "sum_q": sum_(q),
        "sum_pp": dot(p, p),
        "sum_qq": dot(q, q),
        "sum_pq": dot(p, q),
        "sum_binary_kl": sum_(ratios.binary_kl),
        "max_binary_kl": max_(ratios.binary_kl) - empty,
        "prefix_min_d": xp.min(prefix + away, tokens.axis),
        "prefix_max_d": max_(prefix - away),
    }
    return {stem: xp.cast(array, DTYPES[stem]) for stem, array in found.items()}


def _sequence_columns(tokens: Tokens, ratios: Ratios) -> dict[str, Array]:
    """Return the columns of the sequence itself, [B]."""
    xp = tokens.xp
    sum_, count = partial(xp.sum, axis=tokens.axis), partial(xp.count, axis=tokens.axis)
    row = ratios.pairs.index(primary(ratios.pairs))
    abs_d = xp.abs(ratios.d[row])
    n_tokens = count(tokens.valid)
    found = {
        "n_tokens": n_tokens,
        "n_invalid": count(tokens.counts & ~tokens.valid),
        "n_clamped": count(abs_d > MAX_ABS_EXPONENT),
        "argmax_abs_d": xp.where(n_tokens > 0, xp.argmax(abs_d + (tokens.weight - 1.0), tokens.axis), -1),
    }
    for name, logp in zip(tokens.policies, sum_(tokens.logp), strict=True):
        found[SUM_LOGP[name]] = logp
    if tokens.policies[0] == POLICIES[0]:
        found["n_saturated"] = count(tokens.valid & (tokens.logp[0] == 0.0) & (tokens.logp[1] < SATURATED_BELOW))
    if len(tokens.policies) == len(POLICIES):
        found["sum_abs_is_dev"] = sum_(xp.abs(ratios.dev[2] - ratios.dev[0]))
    return found


def _clip_columns(
    advantages: Array, tokens: Tokens, ratios: Ratios, *, clip_low: float, clip_high: float
) -> dict[str, Array]:
    """Return what PPO's clip does to each sequence, on the staleness pair where there is one."""
    count = partial(tokens.xp.count, axis=tokens.axis)
    pair: Pair = "staleness" if "staleness" in ratios.pairs else primary(ratios.pairs)
    dev = ratios.dev[ratios.pairs.index(pair)]
    signs = arranged(advantages, axis=tokens.axis) if advantages.ndim == 2 else _alongside(advantages, tokens)
    above, below = dev > clip_high, dev < -clip_low
    gain, loss = signs > 0, signs < 0
    leaked_high = above & loss
    return {
        "n_clipped": count((above & gain) | (below & loss)),
        "n_leaked": count(leaked_high | (below & gain)),
        "n_leaked_high": count(leaked_high),
    }


def _alongside(per_sequence: Array, tokens: Tokens) -> Array:
    return per_sequence if tokens.axis == -2 else per_sequence[:, None]


def _labels(inputs: Inputs, tokens: Tokens) -> dict[str, Array]:
    """Return what the trainer says of each sequence, [B]; of no token where that is per token, NaN or -1."""
    xp = tokens.xp
    found: dict[str, Any] = {}
    if inputs.advantages is not None:
        found["advantage"] = _advantage(inputs.advantages, tokens)
    if inputs.rewards is not None:
        found["reward"] = inputs.rewards
    if inputs.group_ids is not None:
        found["group_id"] = inputs.group_ids
    if inputs.versions is not None:
        found["version_min"], found["version_max"] = _version_range(inputs.versions, tokens)
    # The trainer may reuse its memory before the columns are read.
    return {name: xp.copied(array, COLUMNS[name].dtype) for name, array in found.items()}


def _advantage(advantages: Array, tokens: Tokens) -> Array:
    if advantages.ndim == 1:
        return advantages
    xp = tokens.xp
    given = xp.cast(arranged(advantages, axis=tokens.axis), "f8")
    return xp.sum(xp.where(tokens.valid, given, 0.0), tokens.axis) / xp.sum(tokens.weight, tokens.axis)


def _version_range(versions: Array, tokens: Tokens) -> tuple[Array, Array]:
    if versions.ndim == 1:
        return versions, versions
    xp: Arrays = tokens.xp
    given = xp.cast(arranged(versions, axis=tokens.axis), "i8")
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    oldest = xp.min(xp.where(tokens.valid, given, most), tokens.axis)
    newest = xp.max(xp.where(tokens.valid, given, least), tokens.axis)
    has_tokens = xp.max(tokens.weight, tokens.axis) > 0
    return xp.where(has_tokens, oldest, -1), xp.where(has_tokens, newest, -1)

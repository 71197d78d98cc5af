"""Reduces blocks of sequences to their columns: terms of pairs, labels, and the KL to a reference policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.column_schema import COLUMNS, PAIR_STEMS, PAIRS, Pair, primary
from trmon_client.core.columns import Columns, histograms
from trmon_client.core.inputs.checked_inputs import (
    MAX_LOGPROB,
    POLICIES,
    CheckedInputs,
    is_sound,
    valid_tokens,
)
from trmon_client.core.reduction.token_terms import (
    BAND_HIGH,
    BAND_LOW,
    MAX_ABS_EXPONENT,
    TRUNCATION,
    ClipRange,
    ClipTokens,
    TokenBlock,
    TokenRatios,
    clamp_log_ratio,
    clipped_pair,
    counted_both,
    k3,
    rollout_pair,
    time_last,
    times,
)


def sequence_labels(inputs: CheckedInputs, *, valid: Array) -> dict[str, Array]:
    """Return the columns of the given labels, [B], as copies.

    Args: valid: bool [B, T]; for a sequence without valid tokens, a label given per token is NaN or -1.
    Source: formulas, section 3.
    """
    found: dict[str, Any] = {}
    if (advantages := inputs.advantages) is not None:
        if advantages.ndim > 1:
            xp = inputs.functions
            advantages = xp.sum(xp.where(valid, xp.cast(advantages, "f8"), 0.0), -1) / xp.count(valid, -1)
        found["advantage"] = advantages
    if inputs.rewards is not None:
        found["reward"] = inputs.rewards
    if inputs.group_ids is not None:
        found["group_id"] = inputs.group_ids
    if inputs.versions is not None:
        found["version_min"], found["version_max"] = _range_of_valid(inputs, inputs.versions, valid)
    if inputs.truncated is not None:
        found["truncated"] = inputs.truncated != 0
    if inputs.finish_reasons is not None:
        found["finish_reason"] = inputs.finish_reasons
    # The trainer may overwrite its memory before the columns are read.
    return {name: inputs.functions.copied(array, COLUMNS[name].dtype) for name, array in found.items()}


def _range_of_valid(inputs: CheckedInputs, given: Array, valid: Array) -> tuple[Array, Array]:
    if given.ndim == 1:
        return given, given
    xp = inputs.functions
    versions = xp.cast(given, "i8")
    smallest, largest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    oldest = xp.min(xp.where(valid, versions, largest), -1)
    newest = xp.max(xp.where(valid, versions, smallest), -1)
    has_tokens = xp.count(valid, -1) > 0
    return xp.where(has_tokens, oldest, -1), xp.where(has_tokens, newest, -1)


SATURATED_BELOW = float(np.log(0.99))
"""A token with log-prob 0 under mu is saturated if the log-prob of the trainer is below this."""

UNLIKELY_BELOW = float(np.log(np.float32(0.5)))
"""A token is unlikely if the log-prob of the trainer is below this, so that one of exactly 0.5 is not."""
HALF = 0.5
"""A gap of probabilities above this is large."""

SUM_LOGP = dict(zip(POLICIES, ("sum_logp_rollout", "sum_logp_old", "sum_logp"), strict=True))
SUM_SQ_LOGP = {policy: name.replace("sum_", "sum_sq_") for policy, name in SUM_LOGP.items()}
DTYPES = {stem: COLUMNS[f"{PAIRS[0]}_{stem}"].dtype for stem in PAIR_STEMS}
NAMES: dict[Pair, dict[str, str]] = {pair: {stem: f"{pair}_{stem}" for stem in PAIR_STEMS} for pair in PAIRS}


def reduce_block(inputs: CheckedInputs, *, clip: ClipRange) -> Columns:
    """Return the columns and histograms of one block. Source: formulas, section 3."""
    tokens = TokenBlock.of(inputs)
    sequence = _token_columns(tokens)
    values: dict[str, Array] = {}
    counts: dict[Pair, Array] = {}
    if len(tokens.policies) > 1:
        ratios = TokenRatios.of(tokens)
        by_stem = _pair_columns(tokens, ratios)
        n_half = by_stem.pop("n_prob_diff_half")
        for row, pair in enumerate(ratios.pairs):
            values |= {name: by_stem[stem][row] for stem, name in NAMES[pair].items()}
        sequence |= _ratio_columns(tokens, ratios, n_tokens=sequence["n_tokens"])
        if (of_rollout := rollout_pair(ratios.pairs)) is not None:
            sequence["n_prob_diff_half"] = n_half[ratios.pairs.index(of_rollout)]
            sequence |= positive_columns(inputs, n_invalid=sequence["n_invalid"])
        if inputs.advantages is not None:
            dev = ratios.dev[ratios.pairs.index(clipped_pair(ratios.pairs))]
            flags = dev > clip.high, dev < -clip.low, dev > clip.dual - 1.0
            if inputs.advantages.ndim == 2:
                advantages, both = time_last(inputs.advantages, axis=tokens.axis), counted_both(tokens.xp, tokens.axis)
                sequence |= ClipTokens(*flags, tokens.valid).columns(advantages, both=both)
            else:
                above, below, far = (tokens.xp.count(flag, tokens.axis) for flag in flags)
                numbers = ClipTokens(above, below, far, sequence["n_tokens"])
                sequence |= numbers.columns(inputs.advantages, both=times)
        counts = dict(zip(ratios.pairs, histograms(ratios.d, valid=tokens.valid), strict=True))
    values |= {name: tokens.xp.cast(array, COLUMNS[name].dtype) for name, array in sequence.items()}
    values |= sequence_labels(inputs, valid=time_last(tokens.valid, axis=tokens.axis))
    return Columns(values, counts)


def _pair_columns(tokens: TokenBlock, ratios: TokenRatios) -> dict[str, Array]:
    """Return the columns of all pairs by stem, and the number of large gaps of probabilities, [pairs, B]."""
    xp, d, dev = tokens.xp, ratios.d, ratios.dev
    sum_, max_, count = (partial(function, axis=tokens.axis) for function in (xp.sum, xp.max, xp.count))
    dot = partial(xp.sum_product, axis=tokens.axis)
    p, q = ratios.p, ratios.q
    prob_diff = xp.abs(p - q)
    truncated = xp.at_most(dev, TRUNCATION - 1.0) + tokens.weight
    # 0 where valid, else infinite: excludes invalid tokens from extremes.
    excluded = 1.0 / tokens.weight - 1.0
    # The same for sequences, for terms >= 0 that are 0 where not valid.
    empty = 1.0 / max_(tokens.weight) - 1.0
    prefix = xp.running_sum(d, tokens.axis)
    found = {
        "sum_d": sum_(d),
        "sum_abs_d": sum_(xp.abs(d)),
        "sum_sq_d": dot(d, d),
        "min_d": xp.min(d + excluded, tokens.axis),
        "max_d": max_(d - excluded),
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
        "prefix_min_d": xp.min(prefix + excluded, tokens.axis),
        "prefix_max_d": max_(prefix - excluded),
    }
    n_half = count(prob_diff > HALF)
    return {stem: xp.cast(array, DTYPES[stem]) for stem, array in found.items()} | {"n_prob_diff_half": n_half}


def _token_columns(tokens: TokenBlock) -> dict[str, Array]:
    """Return the columns of the sequence that need no pair, [B]."""
    xp = tokens.xp
    sum_, count = partial(xp.sum, axis=tokens.axis), partial(xp.count, axis=tokens.axis)
    found = {"n_tokens": count(tokens.valid), "n_invalid": count(tokens.counts & ~tokens.valid)}
    sums, sums_sq = sum_(tokens.logp), xp.sum_product(tokens.logp, tokens.logp, tokens.axis)
    for name, total, total_sq in zip(tokens.policies, sums, sums_sq, strict=True):
        found[SUM_LOGP[name]], found[SUM_SQ_LOGP[name]] = total, total_sq
    if POLICIES[0] in tokens.policies:
        is_zero = tokens.valid & (tokens.logp[0] == 0.0)
        found["n_mu_zero"] = count(is_zero)
        if len(tokens.policies) > 1:
            is_unlikely = tokens.logp[1] < UNLIKELY_BELOW
            found |= {
                "n_saturated": count(is_zero & (tokens.logp[1] < SATURATED_BELOW)),
                "n_mu_zero_unlikely": count(is_zero & is_unlikely),
                "n_unlikely": count(is_unlikely),
                "n_zero_tail": zero_tails(xp, is_zero, counts=tokens.counts, axis=tokens.axis),
            }
    return found


def zero_tails(xp: Arrays, is_zero: Array, *, counts: Array, axis: int) -> Array:
    """Return the number of counting tokens after the last one that is not zero, [B]; all if each is zero."""
    ends = xp.positions(counts.shape[axis], getattr(counts, "device", None)) + 1
    if axis == -2:
        ends = ends[:, None]
    begin = xp.max(ends * (counts & ~is_zero), axis)
    return xp.count(counts & (ends > (begin if axis == -2 else begin[:, None])), axis)


def positive_columns(inputs: CheckedInputs, *, n_invalid: Array) -> dict[str, Array]:
    """Return the number of counting tokens with an impossible probability, which are invalid, and the largest log-prob.

    -inf where there is none. A probability is never above 1, so that the largest tells negated log-probs from them.
    """
    if isinstance(n_invalid, np.ndarray) and not n_invalid.any():
        return {"n_positive": n_invalid, "max_positive": np.full(len(n_invalid), -np.inf, np.float32)}
    xp = inputs.functions
    highest: Any = -np.inf
    for array in inputs.logprobs.values():
        logp = array if array.itemsize >= 4 else xp.cast(array, "f4")
        is_new = inputs.mask & (logp > MAX_LOGPROB) & (logp > highest)
        highest = xp.where(is_new, logp, highest)
    return {"n_positive": xp.count(highest > MAX_LOGPROB, -1), "max_positive": xp.max(highest, -1)}


def _ratio_columns(tokens: TokenBlock, ratios: TokenRatios, *, n_tokens: Array) -> dict[str, Array]:
    """Return the columns of the sequence that need a pair, [B]."""
    xp = tokens.xp
    row = ratios.pairs.index(primary(ratios.pairs))
    abs_d = xp.abs(ratios.d[row])
    found = {
        "n_clamped": xp.count(abs_d > MAX_ABS_EXPONENT, tokens.axis),
        "argmax_abs_d": xp.where(n_tokens > 0, xp.argmax(abs_d + (tokens.weight - 1.0), tokens.axis), -1),
    }
    if len(tokens.policies) == len(POLICIES):
        found["sum_abs_is_dev"] = xp.sum(xp.abs(ratios.dev[2] - ratios.dev[0]), tokens.axis)
    return found


BLOCK_TOKENS = 1 << 14
"""Positions of a block on the CPU: three pairs of float64 take 384 KiB, which fits in the cache."""
DEVICE_BLOCK_TOKENS = 1 << 18
"""Positions of a block on a device: enough to hide the kernel launches, little compared with the trainer's memory."""


def block_tokens(inputs: CheckedInputs) -> int:
    """Return the positions of a block on the device of the arguments."""
    return BLOCK_TOKENS if isinstance(inputs.mask, np.ndarray) else DEVICE_BLOCK_TOKENS


def reference_columns(inputs: CheckedInputs) -> dict[str, Array]:
    """Return the columns of KL(policy||reference) with d = log ref - log policy, [B] each.

    The policy is pi, else pi_old, else mu. A valid token whose reference log-prob is not sound has no part in these
    columns alone. If mu is given beside the policy, `sum_ref_k3_is` weighs k3 by rho = policy/mu, unbiased under mu.
    Source: [K]; DeepSeek-V3.2 (arXiv 2512.02556), eq. 7; formulas, section 3.
    """
    with np.errstate(all="ignore"):
        parts = [_reduce_block(block) for block in inputs.blocks(max_tokens=block_tokens(inputs))]
    join = inputs.functions.concatenate
    return {name: join([part[name] for part in parts]) for name in parts[0]}


def _reduce_block(inputs: CheckedInputs) -> dict[str, Array]:
    xp = inputs.functions
    policy = next(name for name in reversed(POLICIES) if name in inputs.logprobs)
    ref = xp.cast(inputs.ref_logprobs, "f8")
    valid = valid_tokens(inputs) & is_sound(ref)
    sides = (policy, POLICIES[0])
    logp = {name: xp.cast(array, "f8") for name, array in inputs.logprobs.items() if name in sides}
    d = xp.where(valid, ref - logp[policy], 0.0)
    estimate = k3(xp, d, xp.expm1(clamp_log_ratio(xp, d)))
    found = {
        "n_ref_tokens": xp.count(valid, -1),
        "sum_ref_d": xp.sum(d, -1),
        "sum_sq_ref_d": xp.sum_product(d, d, -1),
        "sum_ref_k3": xp.sum(estimate, -1),
        "max_ref_k3": xp.max(xp.where(valid, estimate, -np.inf), -1),
    }
    if len(logp) > 1:
        log_ratio = xp.where(valid, logp[policy] - logp[POLICIES[0]], 0.0)
        found["sum_ref_k3_is"] = xp.sum_product(estimate, xp.exp(clamp_log_ratio(xp, log_ratio)), -1)
    return {name: xp.cast(array, COLUMNS[name].dtype) for name, array in found.items()}

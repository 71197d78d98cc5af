"""Counts the 4-grams of tokens that a response repeats."""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np

from trmon_client.core.arrays import Array, functions_of, is_tensor

LENGTH = 4
"""Tokens of an n-gram."""
BLOCK_TOKENS = 1 << 16
"""Positions of a block on the host: its keys fit in the cache."""
DEVICE_BLOCK_TOKENS = 1 << 20
"""Positions of a block on a device: its keys and their order take some 30 MiB."""
FACTORS = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""The factors of splitmix64, which spread the ids over the upper bits of a key."""
UNUSED_BITS = 33
NOT_COUNTED = 1 << 30
"""The key of a 4-gram that does not count: beyond all others, which have 31 bits with the sign."""


def repetition_columns(ids: Array, mask: Array) -> dict[str, Array]:
    """Return the number of 4-grams of each sequence and of those that occurred earlier in it, int64 [B] each.

    A 4-gram is four neighbouring tokens that all count. Keys of 31 bits stand for them: of a response of T tokens,
    T^2/2^32 different ones are taken for repeated on average. Nothing waits for a device.
    Args: ids: integers [B, T]; mask: bool [B, T].
    Source: Welleck et al. (2019), "Neural Text Generation with Unlikelihood Training" (arXiv 1908.04319), seq-rep-n;
    formulas, section 3.
    """
    n_sequences, horizon = mask.shape
    xp = functions_of(mask)
    if horizon < LENGTH or not n_sequences:
        return dict.fromkeys(("n_four_grams", "n_repeated_four_grams"), xp.cast(mask.sum(-1) * 0, "i8"))
    stride = max(1, (DEVICE_BLOCK_TOKENS if is_tensor(mask) else BLOCK_TOKENS) // horizon)
    blocks = (slice(start, start + stride) for start in range(0, n_sequences, stride))
    grams, repeated = zip(*(_counts(ids[block], mask[block]) for block in blocks), strict=True)
    return {"n_four_grams": xp.concatenate(grams), "n_repeated_four_grams": xp.concatenate(repeated)}


def _counts(ids: Array, mask: Array) -> tuple[Array, Array]:
    """Return both counts of one block: equal keys are neighbours once sorted."""
    xp = functions_of(mask)
    keys = _keys(xp.cast(ids, "i8"))
    width = keys.shape[1]
    counts = reduce(and_, (mask[:, start : start + width] for start in range(LENGTH)))
    n_grams = xp.cast(xp.count(counts, -1), "i8")
    keys = xp.where(counts, keys, NOT_COUNTED)
    ordered = keys.int().sort(-1).values if is_tensor(keys) else np.sort(keys.astype(np.int32), -1)
    n_equal = xp.cast(xp.count(ordered[:, 1:] == ordered[:, :-1], -1), "i8")
    return n_grams, n_equal - xp.at_least(width - n_grams - 1, 0)


def _keys(ids: Array) -> Array:
    """Return the key of each 4-gram, int64 [B, T - 3] of 31 bits with the sign; products wrap around."""
    first, second, third = FACTORS
    pairs = ids[:, :-1] * first
    pairs += ids[:, 1:]
    keys = pairs[:, :-2] * second
    keys += pairs[:, 2:]
    keys *= third
    keys >>= UNUSED_BITS
    return keys

"""What is read from the ratios rho of one pair: their distance from 1, k3, and how many leave which range."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.large.block import Block
from trmon_client.core.ratios import BAND_HIGH, BAND_LOW, MAX_ABS_EXPONENT, TRUNCATION


def deviations(block: Block, d: Array, *, largest: float) -> Array:
    """Return rho - 1, d clamped, in the buffer `dev`; d in float64 is left in the buffer `exact_d`.

    Args: largest: the largest |d|, or -inf.
    """
    exact, dev = block.buffers.exact_d, block.buffers.dev
    np.copyto(exact, d)
    if largest <= MAX_ABS_EXPONENT:
        return np.expm1(exact, out=dev)
    return np.expm1(np.clip(exact, -MAX_ABS_EXPONENT, MAX_ABS_EXPONENT, out=dev), out=dev)


def ratio_columns(block: Block, dev: Array) -> dict[str, Array]:
    """Return the pair's columns of rho by stem, [rows], from what `deviations` left.

    k3 stays float64: in float32 it drowns in the rounding of rho. Source: formulas, section 3.
    """
    flags, single, spare = block.buffers.flags, block.buffers.single, block.buffers.spare
    k3 = np.subtract(dev, block.buffers.exact_d, out=block.buffers.rest)
    # Where d is all but 0, the last bit of rho may be wrong.
    np.abs(k3, out=k3)
    found = {
        "sum_k3": block.sum(k3),
        "max_k3": block.largest(k3),
        "n_band_low": block.count(np.less(dev, BAND_LOW - 1.0, out=flags)),
        "n_band_high": block.count(np.greater(dev, BAND_HIGH - 1.0, out=flags)),
        "n_trunc": block.count(np.greater(dev, TRUNCATION - 1.0, out=flags)),
    }
    np.copyto(single, dev, casting="same_kind")
    found["sum_ratio_dev"] = block.sum(single)
    found["sum_sq_ratio_dev"] = block.dot(single, single)
    found["sum_ratio_deficit"] = -block.sum(np.clip(single, -np.inf, 0.0, out=spare))
    # Float32 would have no digits left of a ratio near 0, either.
    truncated = np.clip(dev, -np.inf, TRUNCATION - 1.0, out=block.buffers.rest)
    truncated += 1.0 if block.weight is None else block.weight
    found["sum_trunc_ratio"] = block.sum(truncated)
    found["sum_sq_trunc_ratio"] = block.dot(truncated, truncated)
    return found

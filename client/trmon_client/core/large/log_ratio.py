"""What is read from the log-ratios d of one pair: sums, extremes and running sums."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays import NUMPY, Array
from trmon_client.core.large.block import Block
from trmon_client.core.ratios import MAX_ABS_EXPONENT


def log_ratio_columns(block: Block, d: Array) -> dict[str, Array]:
    """Return the pair's columns of d by stem, [rows]. Source: formulas, section 3."""
    spare = block.buffers.spare
    found = {
        "sum_d": block.sum(d),
        "sum_abs_d": block.sum(np.abs(d, out=spare)),
        "sum_sq_d": block.dot(d, d),
        "min_d": block.min(d, out=spare),
        "max_d": block.max(d, out=spare),
    }
    prefix = NUMPY.running_sum(d, -1)
    found["prefix_min_d"] = block.min(prefix, out=spare)
    found["prefix_max_d"] = block.max(prefix, out=spare)
    return found


def primary_columns(block: Block, d: Array) -> dict[str, Array]:
    """Return the columns of the sequence that the log-ratios of the primary pair give."""
    abs_d = np.abs(d, out=block.buffers.single)
    furthest = block.blanked(abs_d, out=block.buffers.spare).argmax(-1)
    return {
        "argmax_abs_d": np.where(block.n_tokens > 0, furthest, -1),
        "n_clamped": block.count(np.greater(abs_d, MAX_ABS_EXPONENT, out=block.buffers.flags)),
    }

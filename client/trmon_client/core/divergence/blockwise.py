"""Computes exact divergences block by block, with numpy on the host and torch on a device; each logit is read once.

The arithmetic is float64. The difference of two log-sum-exps has an error of 1e-6 in float32, twice a healthy KL, and
of 1e-16 in float64. On a CPU this is faster than accurate float32, because a block stays in the cache.
"""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of
from trmon_client.core.arrays.conversion import to_computable
from trmon_client.core.divergence.divergence_sums import DivergenceSums
from trmon_client.core.divergence.softmax import Softmax
from trmon_client.core.divergence.token_divergences import quantities_of
from trmon_client.core.inputs.logits import CheckedLogits


def blockwise_divergences(
    logits: CheckedLogits, *, rollout: str, target: str, tv: bool, pi_squared: bool = False
) -> dict[str, Array]:
    """Return the divergences at counting tokens, float64 [B, T] by quantity; other entries are undefined.

    Args: rollout, target: the argument names of the logits of mu and of the trainer; tv: also total variation;
        pi_squared: also the trainer's sum of squared probabilities.
    Source: formulas, section 4.
    """
    quantities = quantities_of(tv=tv, pi_squared=pi_squared)
    empty = functions_of(logits.mask).empty
    found = {quantity: empty(logits.mask.shape, "f8", logits.device) for quantity in quantities}
    with np.errstate(all="ignore"):
        for block in logits.blocks():
            p, q = (Softmax.of(logits.read(name, block)) for name in (rollout, target))
            computed = _divergences(p, q, tv=tv, pi_squared=pi_squared)
            for quantity, array in found.items():
                array[block] = to_computable(computed[quantity], logits.device)
    return found


def _divergences(p: Softmax, q: Softmax, *, tv: bool, pi_squared: bool) -> dict[str, Array]:
    found = DivergenceSums.of(p, q, squares=pi_squared).divergences()
    if tv:
        found["tv"] = p.xp.sum(p.xp.abs(p.probabilities() - q.probabilities()), -1) / 2
    return found

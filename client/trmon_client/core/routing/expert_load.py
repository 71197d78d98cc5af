"""The load of experts: how far the busiest one is above the mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trmon_client.core.arrays import argument_to_computable


def max_vio(expert_ids: Any, *, n_experts: int, mask: Any = None) -> float:
    """Return the largest violation of a balanced load over all layers: 0 when balanced, n_experts/k - 1 at most.

    Args: expert_ids: integers [..., L, k], torch or numpy; negative ids do not count. mask: [...], nonzero where a
    token counts; None counts all.
    Returns: max over layers of (max_i load_i)/(mean load) - 1; nan without a routing.
    Errors: ValueError naming the argument that is out of range.
    Source: Wang et al. 2024, arXiv 2408.15664, MaxVio, of each layer; formulas, section 11.
    """
    ids = np.asarray(argument_to_computable("expert_ids", expert_ids, None))
    if ids.ndim < 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"expert_ids has shape {ids.shape} and dtype {ids.dtype}; expected integers [..., L, k]")
    if int(ids.max(initial=-1)) >= n_experts:
        raise ValueError(f"expert_ids holds {ids.max()}; expected ids below n_experts, {n_experts}")
    if mask is not None:
        counted = np.asarray(argument_to_computable("mask", mask, None)) != 0
        if counted.shape != ids.shape[:-2]:
            raise ValueError(f"mask has shape {counted.shape}; expected that of the tokens, {ids.shape[:-2]}")
        ids = ids[counted]
    ids = ids.reshape(-1, *ids.shape[-2:])
    violations = [_violation(ids[:, layer], n_experts) for layer in range(ids.shape[1])]
    known = [violation for violation in violations if not math.isnan(violation)]
    return max(known, default=math.nan)


def _violation(ids: np.ndarray[Any, Any], n_experts: int) -> float:
    loads = np.bincount(ids[ids >= 0].astype(np.int64), minlength=n_experts)
    total = int(loads.sum())
    return float(loads.max() * n_experts / total - 1) if total else math.nan

"""The columns of the KL to a frozen reference policy: k1, k2 and k3, and k3 under importance weights."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.schema import COLUMNS
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs
from trmon_client.core.inputs.token_validity import is_sound, valid_tokens
from trmon_client.core.reduction.block_size import block_tokens
from trmon_client.core.reduction.kl_estimators import clamp_log_ratio, k3


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

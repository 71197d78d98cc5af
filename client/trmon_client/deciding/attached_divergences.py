"""Divergences beside the columns, where the trainer has logits to give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon_client.core.columns.columns import Columns
from trmon_client.core.divergence.divergence_columns import exact, topk_lower_bound, with_divergences
from trmon_client.core.inputs.token_validity import valid_mask

LOGITS = ("rollout_logits", "logits", "old_logits", "rollout_topk", "token_ids")
"""What `log_batch` takes of logits, all optional."""


def attach_divergences(columns: Columns, *, inputs: Mapping[str, Any], logits: Mapping[str, Any]) -> Columns:
    """Return the columns with the divergences that the given logits allow; unchanged where there are none.

    Args: inputs: what `statistics.columns` took, padded; logits: by the names of LOGITS, None where not given.
    Errors: ValueError naming the argument that is missing or wrong.
    """
    given = {name: value for name, value in logits.items() if value is not None}
    if not given:
        return columns
    if inputs.get("cu_seqlens") is not None:
        raise ValueError(
            f"{next(iter(given))} cannot be given with cu_seqlens; expected [B, T] log-probs beside logits"
        )
    policies = {name: inputs.get(name) for name in ("rollout_logprobs", "old_logprobs", "logprobs")}
    sides = {name: given[name] for name in ("logits", "old_logits") if name in given}
    mask = valid_mask(mask=inputs.get("mask"), **policies)
    if "rollout_logits" in given:
        return with_divergences(columns, exact(rollout_logits=given["rollout_logits"], **sides, mask=mask))
    if "rollout_topk" not in given or "token_ids" not in given:
        raise ValueError(f"{next(iter(given))} needs rollout_logits, or rollout_topk=(ids, logprobs) and token_ids")
    topk_ids, topk_logprobs = given["rollout_topk"]
    bounds = topk_lower_bound(
        topk_ids=topk_ids,
        topk_logprobs=topk_logprobs,
        rollout_logprobs=policies["rollout_logprobs"],
        token_ids=given["token_ids"],
        **sides,
        mask=mask,
    )
    return with_divergences(columns, bounds)

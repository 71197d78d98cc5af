"""Attach the divergences that the trainer's logits allow to the columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon_client.core.arrays import Array
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import Backend, exact, topk_lower_bound, with_divergences
from trmon_client.core.inputs.checked_inputs import CheckedInputs, valid_tokens

REQUESTS = ("tv", "sum_pi_squared")
"""The columns of exact divergences that are computed on request."""


def attach_divergences(
    columns: Columns, *, inputs: CheckedInputs, logits: Mapping[str, Any], backend: Backend = "blocks"
) -> Columns:
    """Return the columns with the divergences that the given logits allow; unchanged without logits.

    Token ids alone are for the recorder.
    Args: inputs: the arguments that the columns were reduced from; logits: those of `log_batch`, by name; backend: of
        exact divergences.
    Errors: ValueError naming the argument that is missing or wrong.
    """
    given = {name: value for name, value in logits.items() if value is not None}
    requests = {name: given.pop(name) for name in REQUESTS if name in given}
    if requests and "rollout_logits" not in given:
        raise ValueError(f"{next(iter(requests))} needs rollout_logits and the trainer's logits")
    if given.keys() <= {"token_ids"}:
        return columns
    if "divergences" in given:
        return _with_computed(columns, given)
    if inputs.layout.is_packed:
        raise ValueError(
            f"{next(iter(given))} cannot be given with cu_seqlens; expected [B, T] log-probs beside logits"
        )
    sides: dict[str, Any] = {name: given[name] for name in ("logits", "old_logits") if name in given}
    mask = valid_tokens(inputs)
    if "rollout_logits" in given:
        found = exact(rollout_logits=given["rollout_logits"], **sides, mask=mask, backend=backend, **requests)
        return with_divergences(columns, found)
    return with_divergences(columns, _lower_bounds(given, sides=sides, inputs=inputs, mask=mask))


def _with_computed(columns: Columns, given: Mapping[str, Any]) -> Columns:
    """Return the columns with divergences that the trainer computed, as its ranks that share a vocabulary do."""
    others = given.keys() - {"divergences", "token_ids"}
    if others:
        raise ValueError(f"divergences and {min(others)} are both given; expected one of them")
    divergences = given["divergences"]
    if not isinstance(divergences, Columns):
        raise ValueError(
            f"divergences is {type(divergences).__name__}; expected what divergence.exact_streamed returns"
        )
    return with_divergences(columns, divergences)


def _lower_bounds(given: Mapping[str, Any], *, sides: Mapping[str, Any], inputs: CheckedInputs, mask: Array) -> Columns:
    if "rollout_topk" not in given or "token_ids" not in given:
        raise ValueError(f"{next(iter(given))} needs rollout_logits, or rollout_topk=(ids, logprobs) and token_ids")
    topk_ids, topk_logprobs = given["rollout_topk"]
    return topk_lower_bound(
        topk_ids=topk_ids,
        topk_logprobs=topk_logprobs,
        rollout_logprobs=inputs.logprobs.get("rollout_logprobs"),
        token_ids=given["token_ids"],
        **sides,
        mask=mask,
    )

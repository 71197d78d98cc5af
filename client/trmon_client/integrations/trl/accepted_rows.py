"""Take rejected sequences out of TRL's loss; its normaliser still counts them."""

from __future__ import annotations

from typing import Any

from trmon_client.deciding.batch_decision import BatchDecision


def restrict_to_accepted(decision: BatchDecision, inputs: dict[str, Any], scored: Any) -> Any:
    """Change what a loss is computed from, so that rejected rows give no gradient; return TRL's scores of the batch.

    Their advantages become 0, their ratios 1, their KL to the reference 0, and their entropies constants. Token rules
    and soft policies weigh the advantages, which multiplies each token's loss by its weight; RLOO's loss has sequences
    only. A sequence that a soft policy keeps with a weight keeps its whole KL and entropy.

    Args: inputs: of `_compute_loss`, changed in place. scored: log-probs and entropies [B, T], then TRL's own.
    """
    import torch

    pi, entropies = scored[0], scored[1]
    advantages = inputs["advantages"]
    accepted = decision.sequence_weights > 0 if decision.is_soft else decision.mask
    rows = accepted[:, None]
    changed: dict[str, Any] = {}
    has_weights = (decision.tokens is not None or decision.is_soft) and "old_logps" not in inputs
    weights = decision.weights if has_weights else None
    if weights is not None:
        per_token = advantages if advantages.dim() == 2 else advantages[:, None]
        changed["advantages"] = torch.where(weights > 0, per_token * weights, 0.0)
    else:
        if decision.is_soft:
            advantages = advantages * decision.sequence_weights.to(advantages.dtype)
        changed["advantages"] = torch.where(accepted if advantages.dim() == 1 else rows, advantages, 0.0)
    for name in {"old_per_token_logps", "ref_per_token_logps"} & inputs.keys():
        changed[name] = decision.clean(inputs[name], pi)
    if "importance_sampling_ratio" in inputs:
        changed["importance_sampling_ratio"] = torch.where(rows, inputs["importance_sampling_ratio"], 1.0)
    inputs |= changed
    return scored if entropies is None else (pi, torch.where(rows, entropies, entropies.detach()), *scored[2:])

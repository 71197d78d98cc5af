"""Exact divergences from logits or hidden states, and certified lower bounds from top-k log-probs."""

from trmon_client.core.divergence.divergence_columns import exact, exact_streamed, topk_lower_bound
from trmon_client.core.divergence.logits import HiddenStates

__all__ = ["HiddenStates", "exact", "exact_streamed", "topk_lower_bound"]

"""Exact divergences from logits, and certified lower bounds from top-k log-probs."""

from trmon_client.core.divergence.divergence_columns import exact, topk_lower_bound

__all__ = ["exact", "topk_lower_bound"]

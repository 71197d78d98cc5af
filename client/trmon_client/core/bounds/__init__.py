"""Error bounds of the surrogate objective and the thresholds derived from them."""

from trmon_client.core.bounds.surrogate_error import ErrorBounds, batch_bounds, error_bounds, max_delta

__all__ = ["ErrorBounds", "batch_bounds", "error_bounds", "max_delta"]

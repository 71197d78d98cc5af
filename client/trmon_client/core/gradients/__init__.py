"""What several gradients, or their random projections, say of the update: direction, signal and noise."""

from trmon_client.core.gradients.gradient_moments import GradientMoments, cosine, gradient_moments, progress_proxy

__all__ = ["GradientMoments", "cosine", "gradient_moments", "progress_proxy"]

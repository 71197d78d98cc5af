"""The signals beyond the core that /metrics shows of the runs that have them: those of optional inputs and methods."""

from __future__ import annotations

from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS

OPTIONAL_SIGNALS: tuple[str, ...] = (
    *("turn_mask_rate", "turn_mask_rate_tokens", "sequence_weight_mean", "sequence_weight_ess"),
    *("proxy3_pure_noise_low", "proxy3_pure_noise_high", "logp_advantage_cov", "leak_share"),
    *("tv_mean", "minorizer", "router_flip_relative", "ref_kl_k3"),
)
"""Their names; a run without a value, or with NaN, has no series."""


def optional_signal_help() -> dict[str, str]:
    """Return the description of each metric."""
    described = {name: SIGNALS.get(name) or DERIVED[name] for name in OPTIONAL_SIGNALS}
    return {f"trmon_{name}": f"{one.description}; {one.unit}." for name, one in described.items()}

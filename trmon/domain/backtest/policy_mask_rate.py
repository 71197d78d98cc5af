"""The share of a run's stored sequences that a policy would have masked."""

from __future__ import annotations

import math

import msgspec

from trmon.domain.analysis.whatif import WhatIfEffect


class PolicyMaskRate(msgspec.Struct, frozen=True, kw_only=True):
    """The fraction of the stored sequences that a policy rejects, beside the fraction that was rejected at the time.

    Both are NaN if it was skipped, and `skipped` says why.
    """

    policy: str
    n_sequences: int = 0
    mask_rate: float = math.nan
    original_mask_rate: float = math.nan
    skipped: str = ""


def mask_rate_of(effect: WhatIfEffect) -> PolicyMaskRate:
    """Return the mask rates of a what-if over all stored sequences of a run."""
    if not effect.total.n:
        return PolicyMaskRate(policy=effect.policy.name, skipped=why_skipped(effect.undecided))
    return PolicyMaskRate(
        policy=effect.policy.name,
        n_sequences=effect.total.n,
        mask_rate=effect.total.mask_rate,
        original_mask_rate=effect.original.mask_rate,
    )


def why_skipped(undecided: dict[str, int]) -> str:
    """Return why no sequence was decided. Args: undecided: reports by what they lack."""
    return "; ".join(undecided) or "no sequences are stored"

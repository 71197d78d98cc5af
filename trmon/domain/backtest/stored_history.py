"""A stored run as a backtest reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from trmon.domain.alerts.alert import AlertState
from trmon.domain.analysis.whatif import WhatIfEffect
from trmon.domain.batches.batch import BatchRow
from trmon.domain.runs.run import Run
from trmon_client.core.policies.policy import Policy

HAS_FIRED = frozenset({AlertState.FIRING.value, AlertState.RESOLVED.value})
"""The states of an alert that fired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """A stored run: `rows` reads it in order by pages, `apply_policy` returns what a policy would have masked.

    `raised` returns the rule and the step of each alert that fired live; None where that is not stored.
    """

    run: Run
    rows: Callable[[], Iterator[BatchRow]]
    apply_policy: Callable[[Policy], PolicyMaskRate]
    raised: Callable[[], Collection[tuple[str, int]]] | None = None

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN."""
        return str(self.run.key)


class PolicyMaskRate(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the stored sequences that a policy rejects, and that was rejected then; NaN if skipped."""

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

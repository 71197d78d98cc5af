"""The controller that derives a threshold from an error bound; its proposals are only recommended."""

from __future__ import annotations

import math

import numpy as np

from trmon.domain.adaptation.adaptation_setting import MIN_SEQUENCES
from trmon.domain.adaptation.proposal import (
    BoundMove,
    BoundProposal,
    ControllerResult,
    NoChange,
    NoChangeReason,
    adapted_name,
)
from trmon.domain.adaptation.sample import PolicySample
from trmon.domain.adaptation.tail import Side, rejected_share, tails_of, with_reaches
from trmon_client.core.bounds.surrogate_error import max_delta
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN

NAME = "bound_budget"
BUDGET_FRACTION = 0.1
"""The fraction of the measured gain that the error bound may reach."""


def recommend(
    sample: PolicySample, *, policy: Policy, gain: float, fraction: float = BUDGET_FRACTION
) -> ControllerResult:
    """Return the policy whose bound on token KL keeps the error bound within a fraction of the measured gain.

    Args: sample: the statistics of `policy` over the newest sequences; gain: reward gained so far, of a range of 1.
    Source: formulas, sections 7 and 8.
    """
    if sample.has_nan:
        return NoChange(
            NoChangeReason.NOT_A_NUMBER, "some log-probs of the window are invalid, or a statistic of them is NaN"
        )
    if len(sample) < MIN_SEQUENCES:
        return NoChange(NoChangeReason.TOO_FEW, f"{len(sample)} sequences; at least {MIN_SEQUENCES} are needed")
    if not gain > 0:
        return NoChange(
            NoChangeReason.NO_GAIN, f"the reward gained {gain:.4g}; the budget is a fraction of a positive gain"
        )
    horizon = int(sample.n_tokens.max())
    kl_seq = None if np.isnan(sample.kl_nats).any() else float(sample.kl_nats.mean())
    delta = max_delta(horizon=horizon, budget=fraction * gain, kl_seq=kl_seq)
    reaches: dict[tuple[int, Side], float] = {
        (i, "upper"): _upper(c, delta) for i, c in enumerate(policy.criteria) if _bounds_token_kl(c)
    }
    if not reaches or math.isinf(delta):
        return NoChange(
            NoChangeReason.NOTHING_TO_MOVE, "no criterion bounds the KL of tokens, or the sequences have no KL to bound"
        )
    return _proposal(sample, policy, reaches=reaches, basis={"gain": gain, "horizon": horizon, "delta": delta})


def _proposal(
    sample: PolicySample, policy: Policy, *, reaches: dict[tuple[int, Side], float], basis: dict[str, float]
) -> BoundProposal:
    proposed = with_reaches(policy, reaches, name=adapted_name(policy))
    return BoundProposal(
        controller=NAME,
        policy=proposed,
        moves=tuple(_move(policy.criteria[index], after=reach) for (index, _), reach in reaches.items()),
        n_sequences=len(sample),
        mask_rate_before=rejected_share(tails_of(sample, policy)),
        mask_rate_after=rejected_share(tails_of(sample, proposed)),
        basis=basis,
    )


def _bounds_token_kl(criterion: Criterion) -> bool:
    return criterion.statistic in ("max_kl", "max_binary_kl") and criterion.upper is not None


def _upper(criterion: Criterion, delta: float) -> float:
    """Return the upper bound; on a lower bound of KL, the margin makes the certificate valid."""
    is_lower_bound = criterion.statistic == "max_binary_kl" or criterion.where == "kl_lower_bound"
    return delta + CERTIFICATE_MARGIN if is_lower_bound else delta


def _move(criterion: Criterion, *, after: float) -> BoundMove:
    assert criterion.upper is not None
    return BoundMove(
        statistic=criterion.statistic,
        pair=criterion.pair,
        side="upper",
        before=criterion.upper,
        after=after,
        wanted=after,
    )

"""Why trmon never says "guaranteed": with masking, the theorem speaks of the masked objective only.

Two prompts, asked equally often. Each has two answers of one token, right (reward 1) and wrong (reward 0), and mu
guesses. On the first prompt pi has learnt; on the second it has all but unlearnt the right answer. The KL of the
second is far above delta, so that its answers are rejected, and what pi does there is seen by nobody.
"""

from __future__ import annotations

import numpy as np
import pytest

from trmon_client.core import divergence, statistics
from trmon_client.core.acceptance import Decision, decide, preset
from trmon_client.core.bounds import batch_bounds
from trmon_client.core.columns import Columns

DELTA = 0.05
MU = np.array([[0.50, 0.50], [0.50, 0.50]])
PI = np.array([[0.65, 0.35], [0.01, 0.99]])
REWARDS = np.array([1.0, 0.0, 1.0, 0.0])
"""Of the four answers: the right and the wrong one to each prompt. All are equally likely under mu."""
ADVANTAGES = REWARDS - 0.5


def batch() -> Columns:
    """Return the columns of the four answers, their KL exact from the logits."""
    mask = np.ones((4, 1), bool)
    columns = statistics.columns(
        rollout_logprobs=np.log(MU).reshape(4, 1),
        logprobs=np.log(PI).reshape(4, 1),
        mask=mask,
        advantages=ADVANTAGES,
        rewards=REWARDS,
    )
    mu, pi = (np.repeat(np.log(policy), 2, axis=0)[:, None] for policy in (MU, PI))
    return divergence.attach(columns, divergence.exact(rollout_logits=mu, logits=pi, mask=mask))


def masked_surrogate(columns: Columns, decision: Decision) -> float:
    """Return L over the batch; rejected answers count among the N. Source: formulas, section 6."""
    return float((decision.accepted * columns["advantage"] * columns["total_sum_ratio_dev"]).mean())


def true_gain() -> float:
    """Return J(pi) - J(mu)."""
    return float(((PI - MU).ravel() * REWARDS).sum() / 2)


def test_two_prompts_show_that_masking_voids_any_guarantee() -> None:
    """Every accepted answer is within delta, the surrogate beats its error bound, and the policy got worse."""
    columns = batch()
    decision = decide(columns, preset("trm_max", delta=DELTA))
    bounds = batch_bounds(columns, accepted=decision.accepted, delta=DELTA)
    surrogate = masked_surrogate(columns, decision)

    assert decision.reasons == [None, None, "max_kl", "max_kl"]
    assert columns["max_kl"][decision.accepted].max() <= DELTA
    assert surrogate == pytest.approx(0.075)
    assert bounds.vacuous is False
    assert surrogate > bounds.adaptive
    assert true_gain() == pytest.approx(-0.17)


def test_the_masked_objective_did_improve_by_what_the_theorem_says() -> None:
    """It is the objective of another policy: pi where answers are accepted, and mu where they are rejected."""
    columns = batch()
    accepted = decide(columns, preset("trm_max", delta=DELTA)).accepted
    cautious = np.where(accepted.reshape(2, 2), PI, MU)
    masked_gain = float(((cautious - MU).ravel() * REWARDS).sum() / 2)
    decision = decide(columns, preset("trm_max", delta=DELTA))
    bounds = batch_bounds(columns, accepted=accepted, delta=DELTA)
    assert abs(masked_gain - masked_surrogate(columns, decision)) <= bounds.adaptive
    assert masked_gain > 0


def test_without_masking_the_bound_is_vacuous_and_promises_nothing() -> None:
    columns = batch()
    everything = decide(columns, preset("trm_max", delta=10.0))
    bounds = batch_bounds(columns)
    assert everything.accepted.all()
    assert bounds.vacuous is True
    assert masked_surrogate(columns, everything) == pytest.approx(true_gain())

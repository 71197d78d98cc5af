"""Why trmon never says "guaranteed": with masking, the theorem speaks of the masked objective only.

Two prompts, asked equally often. Each has two answers of one token, right (reward 1) and wrong (reward 0), and mu
guesses. On the first prompt pi has learnt; on the second it has all but unlearnt the right answer. The KL of the
second is far above delta, so that its answers are rejected, and what pi does there is seen by nobody.
"""

from __future__ import annotations

import numpy as np
import pytest

from trmon_client.core import statistics
from trmon_client.core.bounds.improvement import Improvement, improvement
from trmon_client.core.bounds.surrogate import surrogate
from trmon_client.core.bounds.surrogate_error import batch_bounds
from trmon_client.core.columns.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.policies.acceptance import decide, preset

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
    return divergence_columns.with_divergences(
        columns, divergence_columns.exact(rollout_logits=mu, logits=pi, mask=mask)
    )


def true_gain() -> float:
    """Return J(pi) - J(mu)."""
    return float(((PI - MU).ravel() * REWARDS).sum() / 2)


def test_two_prompts_show_that_masking_voids_any_guarantee() -> None:
    """Every accepted answer is within delta, the surrogate beats its error bound, and the policy got worse."""
    columns = batch()
    decision = decide(columns, preset("trm_max", delta=DELTA))
    bounds = batch_bounds(columns, accepted=decision.accepted, delta=DELTA)
    promised = surrogate(columns, accepted=decision.accepted, centred=True).value

    assert decision.reasons == [None, None, "max_kl", "max_kl"]
    assert columns["max_kl"][decision.accepted].max() <= DELTA
    assert promised == pytest.approx(0.075)
    assert promised > bounds.adaptive == pytest.approx(0.0609, abs=1e-4)
    assert bounds.vacuous is False
    assert true_gain() == pytest.approx(-0.17)


def test_so_improvement_is_never_supported_where_a_sequence_was_rejected() -> None:
    columns = batch()
    accepted = decide(columns, preset("trm_max", delta=DELTA)).accepted
    assert improvement(columns, accepted=accepted, centred=True) is Improvement.REJECTIONS


def test_the_masked_objective_did_improve_as_the_theorem_says() -> None:
    """It is the objective of another policy: pi where answers are accepted, and mu where they are rejected."""
    columns = batch()
    accepted = decide(columns, preset("trm_max", delta=DELTA)).accepted
    promised = surrogate(columns, accepted=accepted, centred=True).value
    cautious = np.where(accepted.reshape(2, 2), PI, MU)
    gained = float(((cautious - MU).ravel() * REWARDS).sum() / 2)
    assert gained > 0
    assert abs(gained - promised) <= batch_bounds(columns, accepted=accepted, delta=DELTA).adaptive


def test_without_masking_the_surrogate_sees_the_loss() -> None:
    columns = batch()
    assert decide(columns, preset("trm_max", delta=10.0)).accepted.all()
    assert surrogate(columns, centred=True).value == pytest.approx(true_gain())

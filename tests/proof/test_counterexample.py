"""A counterexample to guaranteed improvement: with masking, the theorem covers only the masked objective.

There are two equally frequent prompts, each with a right answer (reward 1) and a wrong one (reward 0) of one token, and
mu guesses. On the first prompt pi has improved; on the second it has almost lost the right answer. The KL of the second
prompt is far above delta, so its answers are rejected and the loss is not visible.
"""

from __future__ import annotations

import numpy as np
import pytest

from trmon_client.core import statistics
from trmon_client.core.bounds import Improvement, batch_bounds, improvement, surrogate
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset

DELTA = 0.05
MU = np.array([[0.50, 0.50], [0.50, 0.50]])
PI = np.array([[0.65, 0.35], [0.01, 0.99]])
REWARDS = np.array([1.0, 0.0, 1.0, 0.0])
"""The rewards of the four answers, right and wrong for each prompt; all are equally likely under mu."""
ADVANTAGES = REWARDS - 0.5


def batch() -> Columns:
    """Return the columns of the four answers, with exact KL from the logits."""
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


def test_a_policy_can_get_worse_although_the_masked_surrogate_beats_its_bound() -> None:
    """Every accepted answer is within delta and the surrogate exceeds its error bound, but the policy got worse."""
    columns = batch()
    decision = decide(columns, preset("trm_max", delta=DELTA))
    bounds = batch_bounds(columns, accepted=decision.accepted, delta=DELTA)
    estimate = surrogate(columns, accepted=decision.accepted, centred=True).value

    assert decision.reasons == [None, None, "max_kl", "max_kl"]
    assert columns["max_kl"][decision.accepted].max() <= DELTA
    assert estimate == pytest.approx(0.075)
    assert estimate > bounds.adaptive == pytest.approx(0.0609, abs=1e-4)
    assert bounds.vacuous is False
    assert true_gain() == pytest.approx(-0.17)


def test_the_masked_objective_improved_as_the_theorem_states_which_supports_no_improvement_of_the_policy() -> None:
    """The masked objective belongs to another policy: pi where answers are accepted, mu where they are rejected."""
    columns = batch()
    accepted = decide(columns, preset("trm_max", delta=DELTA)).accepted
    estimate = surrogate(columns, accepted=accepted, centred=True).value
    cautious = np.where(accepted.reshape(2, 2), PI, MU)
    gained = float(((cautious - MU).ravel() * REWARDS).sum() / 2)
    assert gained > 0
    assert abs(gained - estimate) <= batch_bounds(columns, accepted=accepted, delta=DELTA).adaptive
    assert improvement(columns, accepted=accepted, centred=True) is Improvement.REJECTIONS


def test_without_masking_the_surrogate_shows_the_loss() -> None:
    columns = batch()
    assert decide(columns, preset("trm_max", delta=10.0)).accepted.all()
    assert surrogate(columns, centred=True).value == pytest.approx(true_gain())

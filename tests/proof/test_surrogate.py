"""The masked surrogate: its gradient is the masked policy gradient, and at pi = mu the one of the true objective.

L = (1/N) sum_i M_i A_i (sum_t rho_t - T_i), by central differences over every logit of policies that can be written
down, in the batch that holds every response as often as mu gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.proof.models import Array, Language, Model, census, countable_model, near
from trmon_client.core import statistics
from trmon_client.core.acceptance import decide, preset

PARTS = 8
STEP = 1e-4
"""Of a logit; the error of central differences is of its square."""


@dataclass(frozen=True)
class Task:
    """What mu sampled, with a reward for every response; `accepted` and advantages are of the batch, [N]."""

    mu: Model
    batch: Array
    rewards: Array
    accepted: Array

    @property
    def advantages(self) -> Array:
        return (self.rewards - self.rewards[self.batch].mean())[self.batch]

    def surrogate(self, pi: Model) -> float:
        """Return L; rejected responses count among the N. Source: formulas, section 6."""
        columns = statistics.columns(
            rollout_logprobs=self.mu.logprobs[self.batch],
            logprobs=pi.logprobs[self.batch],
            mask=self.mu.language.mask[self.batch],
            advantages=self.advantages,
        )
        return float((self.accepted * columns["advantage"] * columns["total_sum_ratio_dev"]).mean())

    def objective(self, pi: Model) -> float:
        """Return J."""
        return float(pi.responses @ self.rewards)

    def masked_policy_gradient(self, pi: Model) -> list[Array]:
        """Return (1/N) sum_i M_i A_i sum_t rho_t grad log pi, by the logits of pi. Source: [TRM] eq. 23."""
        language = self.mu.language
        before = language.prefixes[self.batch]
        tokens = language.tokens[self.batch]
        ratios = (pi.chosen / self.mu.chosen)[self.batch]
        weights = np.where(language.mask[self.batch], (self.accepted * self.advantages)[:, None] * ratios, 0.0)
        gradient = [np.zeros_like(table) for table in pi.tables]
        for t, table in enumerate(pi.tables):
            of_logits = np.eye(language.vocabulary)[tokens[:, t]] - table[before[:, t]]
            np.add.at(gradient[t], before[:, t], weights[:, t, None] * of_logits / len(self.batch))
        return gradient


def task(seed: int, *, stops: bool, accepts: float) -> tuple[Task, Model]:
    """Return a task and a policy; a share of the responses, the least divergent, is accepted."""
    random = np.random.default_rng(seed)
    language = Language(3, horizon=3, stops=stops)
    mu = countable_model(random, language, parts=PARTS, truncates=False)
    pi = near(mu, random, noise=0.7)
    batch = census(mu, parts=PARTS)
    mask = language.mask[batch]
    columns = statistics.columns(rollout_logprobs=mu.logprobs[batch], logprobs=pi.logprobs[batch], mask=mask)
    bound = float(np.quantile(columns["total_max_k3"], accepts, method="higher"))
    accepted = decide(columns, preset("seq_max_k3", upper=bound)).accepted
    return Task(mu, batch, random.uniform(size=len(mu.responses)), accepted), pi


def central_differences(value: Callable[[Model], float], at: Model) -> list[Array]:
    """Return the gradient by every logit."""
    gradient = [np.zeros_like(table) for table in at.tables]
    for t, table in enumerate(at.tables):
        for entry in np.ndindex(table.shape):
            above, below = (value(_moved(at, t, entry, step)) for step in (STEP, -STEP))
            gradient[t][entry] = (above - below) / (2 * STEP)
    return gradient


def _moved(model: Model, t: int, entry: tuple[int, ...], step: float) -> Model:
    table = model.tables[t].copy()
    table[entry] *= np.exp(step)
    table /= table.sum(axis=1, keepdims=True)
    return Model(model.language, (*model.tables[:t], table, *model.tables[t + 1 :]))


def assert_close(found: list[Array], expected: list[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [False, True], ids=["fixed length", "stops"])
@pytest.mark.parametrize("accepts", [0.5, 1.0], ids=["half rejected", "nothing rejected"])
def test_its_gradient_is_the_masked_policy_gradient(seed: int, stops: bool, accepts: float) -> None:
    given, pi = task(seed, stops=stops, accepts=accepts)
    assert given.accepted.all() == (accepts == 1.0)
    found = given.masked_policy_gradient(pi)
    assert max(np.abs(table).max() for table in found) > 0.01
    assert_close(central_differences(given.surrogate, pi), found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [False, True], ids=["fixed length", "stops"])
def test_where_both_policies_are_one_it_is_nought_and_climbs_as_the_true_objective(seed: int, stops: bool) -> None:
    given, _ = task(seed, stops=stops, accepts=1.0)
    assert given.surrogate(given.mu) == 0.0
    climbs = central_differences(given.objective, given.mu)
    assert_close(central_differences(given.surrogate, given.mu), climbs)
    assert_close(given.masked_policy_gradient(given.mu), climbs)

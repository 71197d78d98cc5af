"""The surrogate has the masked policy gradient, supports only true improvement, and the error bounds hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.proof.models import (
    Array,
    Language,
    Model,
    census,
    columns_of,
    countable_model,
    moved,
    near,
    random_model,
    truncated,
)
from trmon_client.core import statistics
from trmon_client.core.bounds import ErrorBounds, Improvement, error_bounds, improvement, minorizer, surrogate
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset

STEP = 1e-4
"""The step of a logit; the error of central differences is proportional to its square."""


@dataclass(frozen=True)
class Task:
    """Response indices in proportion to mu, and a reward in [0, 1] for each response."""

    mu: Model
    batch: Array
    rewards: Array

    @classmethod
    def random(cls, random: np.random.Generator, language: Language, *, parts: int = 8) -> Task:
        """Return a task with random rewards, in which mu gives every token a probability above 0."""
        mu = countable_model(random, language, parts=parts, truncates=False)
        return cls(mu, census(mu, parts=parts), random.uniform(size=len(mu.responses)))

    @property
    def advantages(self) -> Array:
        """[N]: R - b, where the baseline b is the objective of mu."""
        return self.rewards[self.batch] - self.objective(self.mu)

    def objective(self, policy: Model) -> float:
        """Return J, the expected reward of the policy."""
        return float(policy.responses @ self.rewards)

    def columns(self, pi: Model) -> Columns:
        """Return the columns of the batch, with exact divergences."""
        return columns_of(self.batch, mu=self.mu, pi=pi, advantages=self.advantages)

    def policy_gradient(self, pi: Model, *, accepted: Array) -> list[Array]:
        """Return (1/N) sum_i M_i A_i sum_t rho_t grad log pi, by the logits of pi. Source: [TRM] eq. 23."""
        language = self.mu.language
        before, tokens = language.prefixes[self.batch], language.tokens[self.batch]
        ratios = (pi.chosen / self.mu.chosen)[self.batch]
        weights = np.where(language.mask[self.batch], (accepted * self.advantages)[:, None] * ratios, 0.0)
        gradient = [np.zeros_like(table) for table in pi.tables]
        for t, table in enumerate(pi.tables):
            of_logits = np.eye(language.vocabulary)[tokens[:, t]] - table[before[:, t]]
            np.add.at(gradient[t], before[:, t], weights[:, t, None] * of_logits / len(self.batch))
        return gradient


def gradient(value: Callable[[Model], float], at: Model) -> list[Array]:
    """Return the central differences with respect to each logit."""
    found = [np.zeros_like(table) for table in at.tables]
    for t, table in enumerate(at.tables):
        for entry in np.ndindex(table.shape):
            one = [np.zeros_like(each) for each in at.tables]
            one[t][entry] = 1.0
            above, below = (value(moved(at, one, by=step)) for step in (STEP, -STEP))
            found[t][entry] = (above - below) / (2 * STEP)
    return found


def assert_close(found: list[Array], expected: list[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


def drifted(seed: int, *, stops: bool, share: float) -> tuple[Task, Model, float]:
    """Return a task, a policy, and the bound on the largest k3 which a share of the responses meets."""
    random = np.random.default_rng(seed)
    task = Task.random(random, Language(3, 3, stops=stops))
    pi = near(task.mu, random, noise=0.7)
    return task, pi, float(np.quantile(task.columns(pi)["total_max_k3"], share, method="higher"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [False, True], ids=["fixed length", "stops"])
@pytest.mark.parametrize("share", [0.5, 1.0], ids=["half rejected", "nothing rejected"])
def test_the_gradient_is_the_masked_policy_gradient(seed: int, stops: bool, share: float) -> None:
    task, pi, bound = drifted(seed, stops=stops, share=share)
    accepted = decide(task.columns(pi), preset("seq_max_k3", upper=bound)).accepted
    assert accepted.all() == (share == 1.0)
    found = gradient(lambda policy: surrogate(task.columns(policy), accepted=accepted, centred=True).value, pi)
    expected = task.policy_gradient(pi, accepted=accepted)
    assert max(np.abs(table).max() for table in expected) > 0.01
    assert_close(found, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tau", [1e-9, 0.3, 3.0])
def test_the_gradient_of_soft_masking_is_the_weighted_policy_gradient(seed: int, tau: float) -> None:
    task, pi, bound = drifted(seed, stops=True, share=0.5)
    decision = decide(task.columns(pi), preset("seq_max_k3", upper=bound, soft_tau=tau))
    weights = decision.soft_weights
    found = gradient(lambda policy: surrogate(task.columns(policy), weights=weights, centred=True).value, pi)
    assert_close(found, task.policy_gradient(pi, accepted=weights))
    if tau == 1e-9:
        assert_close(found, task.policy_gradient(pi, accepted=decision.accepted))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [False, True], ids=["fixed length", "stops"])
def test_at_equal_policies_the_surrogate_is_zero_with_the_gradient_of_the_objective(seed: int, stops: bool) -> None:
    task = Task.random(np.random.default_rng(seed), Language(3, 3, stops=stops))
    assert surrogate(task.columns(task.mu), centred=True).value == 0.0
    climbs = gradient(task.objective, task.mu)
    assert_close(gradient(lambda policy: surrogate(task.columns(policy), centred=True).value, task.mu), climbs)
    assert_close(task.policy_gradient(task.mu, accepted=np.ones(len(task.batch))), climbs)


def with_misleading_rewards(task: Task, pi: Model) -> Task:
    """Return the task with the rewards for which the surrogate exceeds the true gain of pi most."""
    said = 1 + np.where(task.mu.language.mask, pi.chosen / task.mu.chosen - 1, 0.0).sum(axis=1)
    return replace(task, rewards=(pi.responses < task.mu.responses * said).astype(float))


def test_improvement_is_supported_only_where_the_true_objective_rises() -> None:
    """Check steps of all sizes along the gradient, and steps whose rewards mislead the surrogate."""
    supported, misled = 0, 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        task = Task.random(random, Language(3, 3))
        uphill = task.policy_gradient(task.mu, accepted=np.ones(len(task.batch)))
        steps = [(task, moved(task.mu, uphill, by=by)) for by in np.geomspace(0.01, 100.0, 10)]
        drifted = [near(task.mu, random, noise=noise) for noise in np.geomspace(0.01, 3.0, 10)]
        for trained, pi in (*steps, *((with_misleading_rewards(task, pi), pi) for pi in drifted)):
            columns = trained.columns(pi)
            rises = trained.objective(pi) > trained.objective(trained.mu)
            found = improvement(columns, accepted=np.ones(len(task.batch), bool), centred=True)
            is_supported = found is Improvement.SUPPORTED
            assert rises or not is_supported
            supported += is_supported
            misled += not rises and surrogate(columns, centred=True).value > 0
    assert supported > 50
    assert misled > 30


@pytest.mark.parametrize("is_soft", [False, True], ids=["all kept", "soft weights"])
def test_the_gain_is_at_least_the_minorizer(is_soft: bool) -> None:
    """With soft weights M the gain is that of the mean of M (R - b)."""
    positive = 0
    for seed in range(150):
        random = np.random.default_rng(seed)
        task = Task.random(random, Language(2, 2), parts=4)
        pi = near(task.mu, random, noise=10.0 ** random.uniform(-4, 0))
        soft = random.uniform(0.01, 1.0, len(task.rewards)) if is_soft else np.ones(len(task.rewards))
        gained = soft * (task.rewards - task.objective(task.mu))
        found = minorizer(task.columns(pi), weights=soft[task.batch] if is_soft else None, centred=True)
        assert (pi.responses - task.mu.responses) @ gained >= found.value - 1e-9
        positive += found.value > 0
    assert positive > 0  # some gains are certified, so that the bound says something


KINDS = ("trpo", "pinsker_marginal", "mixed", "adaptive")
ROUNDING = 1e-12
"""The rounding of the error, a difference of sums of numbers below 1."""
LANGUAGES = [
    Language(2, 1),
    Language(4, 1),
    Language(3, 2),
    Language(3, 3, stops=True),
    Language(4, 3),
    Language(3, 4),
    Language(2, 6),
    Language(3, 5, stops=True),
    Language(3, 6, stops=True),
]


@dataclass(frozen=True)
class Process:
    """Two policies over one language; the rewards are those of the worst case."""

    mu: Model
    pi: Model

    def surrogate_weights(self) -> Array:
        """Return the contribution of one unit of A at each response to L if all are accepted, [N]."""
        sampled = self.mu.responses > 0
        logprobs = {"rollout_logprobs": self.mu.logprobs[sampled], "logprobs": self.pi.logprobs[sampled]}
        columns = statistics.columns(**logprobs, mask=self.mu.language.mask[sampled])
        weights = np.zeros(len(sampled))
        weights[sampled] = self.mu.responses[sampled] * columns["total_sum_ratio_dev"]
        return weights

    def error(self, rewards: Array, *, baseline: float) -> float:
        """Return J(pi) - J(mu) - L(pi). Source: formulas, section 6."""
        gained = ((self.pi.responses - self.mu.responses) * rewards).sum()
        return float(gained - (self.surrogate_weights() * (rewards - baseline)).sum())

    def worst_rewards(self) -> tuple[Array, Array]:
        """Return the rewards that maximise and minimise the error."""
        coefficients = self.pi.responses - self.mu.responses - self.surrogate_weights()
        return (coefficients > 0).astype(float), (coefficients < 0).astype(float)

    def worst_error(self) -> float:
        """Return the largest |error| over all rewards and all baselines from 0 to 1."""
        errors = [self.error(rewards, baseline=b) for rewards in self.worst_rewards() for b in (0.0, 1.0)]
        return max(abs(error) for error in errors)

    def bounds(self, *, reverse: bool = False) -> ErrorBounds:
        """Return the bounds from the exact KL; with `reverse` from the smaller of both directions' maxima."""
        language = self.mu.language
        logits = {"rollout_logits": self.mu.logits, "logits": self.pi.logits}
        exact = divergence_columns.exact(**logits, mask=language.mask)
        kl_max = min(float(exact[name].max()) for name in ("max_kl", *(["max_reverse_kl"] if reverse else [])))
        kl_seq = float((self.mu.responses * exact["sum_kl"]).sum())
        return error_bounds(horizon=language.horizon, kl_max=kl_max, kl_seq=kl_seq)


def processes(language: Language, *, n: int) -> list[Process]:
    """Return pairs from nearly equal to unrelated, and from high entropy to nearly deterministic."""
    random = np.random.default_rng(language.horizon)
    found = []
    for index in range(n):
        mu = random_model(random, language, sharpness=(0.3, 1.0, 3.0, 10.0)[index % 4])
        noise = float(10.0 ** random.uniform(-3, 1))
        found.append(Process(mu, near(mu, random, noise=noise)))
    return found


every_language = pytest.mark.parametrize("language", LANGUAGES, ids=str)


@every_language
@pytest.mark.parametrize("reverse", [False, True], ids=["largest KL", "smaller of both largest"])
def test_no_rewards_make_the_error_exceed_a_bound(language: Language, reverse: bool) -> None:
    """Over 2,700 other such pairs the error reached 0.35 of trpo, 0.18 of pinsker_marginal and 0.13 of mixed.

    Source: [TRM] remark B.5, for the smaller of both directions' maxima.
    """
    for process in processes(language, n=20 if reverse else 40):
        bounds, error = process.bounds(reverse=reverse), process.worst_error()
        for kind in KINDS:
            assert error <= getattr(bounds, kind) + ROUNDING, kind


@every_language
def test_the_adaptive_bound_holds_for_a_truncated_support(language: Language) -> None:
    random = np.random.default_rng(language.horizon)
    for whole in processes(language, n=20):
        process = Process(truncated(whole.mu, random), whole.pi)
        bounds, error = process.bounds(), process.worst_error()
        for kind in ("pinsker_marginal", "mixed", "adaptive"):
            assert error <= getattr(bounds, kind) + ROUNDING, kind


def test_the_trpo_bound_does_not_hold_for_a_truncated_support() -> None:
    """L ignores tokens that mu never samples: here the bound is 0 and the error is their mass under pi."""
    language = Language(3, 1)
    mu, pi = (Model(language, (np.array([row]),)) for row in ([0.5, 0.5, 0.0], [0.45, 0.45, 0.1]))
    process = Process(mu, pi)
    assert process.bounds().trpo == 0.0
    assert process.worst_error() == pytest.approx(0.1)
    assert process.bounds().adaptive > 0.1


@pytest.mark.parametrize("horizon", [2, 3, 4, 5, 6])
def test_the_error_of_steady_drift_equals_theory_and_reaches_half_the_trpo_bound(horizon: int) -> None:
    """If every token shifts by e from even odds, the worst error is e^2 E|S^2 - T|, with S the sum of T random signs.

    The KL is 2 e^2 per token. At T = 2 the error is half the trpo bound; at T = 6 it is 0.094 of trpo, 0.144 of
    pinsker_marginal and 0.096 of mixed.
    """
    shift = 0.001
    language = Language(2, horizon)
    even, shifted = (
        Model(language, tuple(np.tile([0.5 + e, 0.5 - e], (2**t, 1)) for t in range(horizon))) for e in (0.0, shift)
    )
    signs = 1 - 2 * language.tokens
    process = Process(even, shifted)
    error, bounds = process.worst_error(), process.bounds()
    assert error == pytest.approx(shift**2 * np.abs(signs.sum(axis=1) ** 2 - horizon).mean(), rel=0.01)
    assert bounds.trpo == pytest.approx(2 * horizon * (horizon - 1) * shift**2, rel=0.01)
    assert bounds.adaptive == pytest.approx(8 / 3 * horizon**1.5 * shift**2, rel=0.01)
    assert bounds.mixed == pytest.approx(4 * horizon**1.5 * shift**2, rel=0.01)
    if horizon == 2:
        assert error == pytest.approx(bounds.trpo / 2, rel=0.01)

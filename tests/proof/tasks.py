"""Enumerable reinforcement learning tasks: the responses of mu with their rewards, and the objective of a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.proof.models import Array, Language, Model, census, countable_model
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns


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
        mask = self.mu.language.mask[self.batch]
        columns = statistics.columns(
            rollout_logprobs=self.mu.logprobs[self.batch],
            logprobs=pi.logprobs[self.batch],
            mask=mask,
            advantages=self.advantages,
        )
        logits = (model.logits[self.batch] for model in (self.mu, pi))
        return divergence_columns.with_divergences(
            columns, divergence_columns.exact(rollout_logits=next(logits), logits=next(logits), mask=mask)
        )

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

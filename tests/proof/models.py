"""Autoregressive policies small enough to enumerate every response, so that expectations are sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import divergence_columns

Array: TypeAlias = Any
"""A numpy array."""

LEAST_PROBABILITY = 1e-6
"""The smallest probability of a token in a random model: |d| then stays below 14, far below the clamp."""


@dataclass(frozen=True)
class Language:
    """All responses of `horizon` tokens, or of at most `horizon` tokens if token 0 `stops` a response."""

    vocabulary: int
    horizon: int
    stops: bool = False

    @cached_property
    def tokens(self) -> Array:
        """[N, T]: the tokens of each response; 0 after its end."""
        return self._all[self.kept]

    @cached_property
    def mask(self) -> Array:
        """[N, T]: the positions at which a response has a token."""
        return self._alive[self.kept]

    @cached_property
    def prefixes(self) -> Array:
        """[N, T]: the preceding tokens of each token as a number in base V."""
        numbers = np.flatnonzero(self.kept)[:, None]
        return numbers // self.vocabulary ** (self.horizon - np.arange(self.horizon))

    @cached_property
    def kept(self) -> Array:
        """bool [V**T]: the sequences that are responses, with only zeros after their end."""
        return np.all(self._alive | (self._all == 0), axis=1)

    @cached_property
    def _all(self) -> Array:
        shape = (self.vocabulary,) * self.horizon
        return np.stack(np.unravel_index(np.arange(self.vocabulary**self.horizon), shape), axis=1)

    @cached_property
    def _alive(self) -> Array:
        going_on = np.ones_like(self._all, bool)
        if self.stops:
            going_on[:, 1:] = np.logical_and.accumulate(self._all[:, :-1] != 0, axis=1)
        return going_on


@dataclass(frozen=True)
class Model:
    """`tables[t]` [V**t, V] holds the probabilities of token t by the preceding tokens as a number in base V."""

    language: Language
    tables: tuple[Array, ...]

    @cached_property
    def conditionals(self) -> Array:
        """[N, T, V]: the distribution at each position of each response."""
        prefixes = self.language.prefixes
        return np.stack([table[prefixes[:, t]] for t, table in enumerate(self.tables)], axis=1)

    @cached_property
    def chosen(self) -> Array:
        """[N, T]: the probability of each token of each response; 1 after its end."""
        chosen = np.take_along_axis(self.conditionals, self.language.tokens[..., None], -1)[..., 0]
        return np.where(self.language.mask, chosen, 1.0)

    @cached_property
    def responses(self) -> Array:
        """[N]: the probability of each response."""
        return self.chosen.prod(axis=1)

    @property
    def logprobs(self) -> Array:
        """[N, T]: the log-probs of the tokens, -inf for impossible ones."""
        with np.errstate(divide="ignore"):
            return np.log(self.chosen)

    @property
    def logits(self) -> Array:
        """[N, T, V]: the log-probs of the whole vocabulary."""
        with np.errstate(divide="ignore"):
            return np.log(self.conditionals)

    def expected(self, of_context: Array) -> float:
        """Return the mean per token of values [N, T], over the responses of this model."""
        per_response = np.where(self.language.mask, of_context, 0.0).sum(axis=1)
        n_tokens = self.language.mask.sum(axis=1)
        return float((self.responses * per_response).sum() / (self.responses * n_tokens).sum())


def random_model(random: np.random.Generator, language: Language, *, sharpness: float = 1.0) -> Model:
    """Return a model with random logits; at a sharpness of 10 most contexts are nearly deterministic."""
    return _of_logits(language, [sharpness * random.normal(size=shape) for shape in _shapes(language)])


def near(model: Model, random: np.random.Generator, *, noise: float) -> Model:
    """Return a model with noise added to the logits; every token has a probability above 0."""
    logits = [np.log(np.maximum(table, LEAST_PROBABILITY)) for table in model.tables]
    return _of_logits(model.language, [a + noise * random.normal(size=a.shape) for a in logits])


def moved(model: Model, direction: list[Array], *, by: float) -> Model:
    """Return the model with its logits moved along a direction; probabilities of 0 stay 0."""
    tables = [table * np.exp(by * step) for table, step in zip(model.tables, direction, strict=True)]
    return Model(model.language, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def truncated(model: Model, random: np.random.Generator) -> Model:
    """Return the model without one token in each context, like top-k sampling."""
    tables = [table.copy() for table in model.tables]
    for table in tables:
        np.put_along_axis(table, random.integers(table.shape[1], size=(len(table), 1)), 0.0, -1)
    return Model(model.language, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def countable_model(random: np.random.Generator, language: Language, *, parts: int, truncates: bool) -> Model:
    """Return a model whose probabilities are multiples of 1/parts; they may be 0 if it truncates."""
    least = 0 if truncates else 1
    spread = parts - least * language.vocabulary
    even = np.full(language.vocabulary, 1 / language.vocabulary)
    return Model(
        language,
        tuple((least + random.multinomial(spread, even, size=rows)) / parts for rows, _ in _shapes(language)),
    )


def census(model: Model, *, parts: int) -> Array:
    """Return parts**T response indices, each response in proportion to its probability in a countable model.

    A mean over this batch is an expectation.
    """
    counts = model.responses * parts**model.language.horizon
    return np.repeat(np.arange(len(counts)), np.rint(counts).astype(int))


def columns_of(batch: Array, *, mu: Model, pi: Model, tv: bool = False, **given: Any) -> Columns:
    """Return the columns of a batch of responses by their indices, with the exact divergences of pi from mu."""
    mask = mu.language.mask[batch]
    columns = statistics.columns(rollout_logprobs=mu.logprobs[batch], logprobs=pi.logprobs[batch], mask=mask, **given)
    exact = divergence_columns.exact(rollout_logits=mu.logits[batch], logits=pi.logits[batch], mask=mask, tv=tv)
    return divergence_columns.with_divergences(columns, exact)


def _shapes(language: Language) -> list[tuple[int, int]]:
    return [(language.vocabulary**t, language.vocabulary) for t in range(language.horizon)]


def _of_logits(language: Language, logits: list[Array]) -> Model:
    tables = [np.exp(table - table.max(axis=1, keepdims=True)) for table in logits]
    floored = [np.maximum(table / table.sum(axis=1, keepdims=True), LEAST_PROBABILITY) for table in tables]
    return Model(language, tuple(table / table.sum(axis=1, keepdims=True) for table in floored))

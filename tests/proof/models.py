"""Autoregressive policies so small that every response can be written down: expectations over them are sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A numpy array."""

LEAST_PROBABILITY = 1e-6
"""Of a token under a random model: with it no |d| exceeds 14, which is far from where d is clamped."""


@dataclass(frozen=True)
class Language:
    """Every response of `horizon` tokens or, where token 0 `stops` a response, of at most as many."""

    vocabulary: int
    horizon: int
    stops: bool = False

    @cached_property
    def tokens(self) -> Array:
        """[N, T]: the tokens of every response; 0 behind its end."""
        return self._all[self.kept]

    @cached_property
    def mask(self) -> Array:
        """[N, T]: where a response has a token."""
        return self._alive[self.kept]

    @cached_property
    def prefixes(self) -> Array:
        """[N, T]: the number that the tokens before each one spell, in base V."""
        numbers = np.flatnonzero(self.kept)[:, None]
        return numbers // self.vocabulary ** (self.horizon - np.arange(self.horizon))

    @cached_property
    def kept(self) -> Array:
        """bool [V**T]: which sequences are responses, and not one of them with something behind its end."""
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
    """`tables[t]` [V**t, V] holds the probabilities of token t, by the number that the tokens before it spell."""

    language: Language
    tables: tuple[Array, ...]

    @cached_property
    def conditionals(self) -> Array:
        """[N, T, V]: the distribution at every position of every response."""
        prefixes = self.language.prefixes
        return np.stack([table[prefixes[:, t]] for t, table in enumerate(self.tables)], axis=1)

    @cached_property
    def chosen(self) -> Array:
        """[N, T]: the probability of every token of every response; 1 behind its end."""
        chosen = np.take_along_axis(self.conditionals, self.language.tokens[..., None], -1)[..., 0]
        return np.where(self.language.mask, chosen, 1.0)

    @cached_property
    def responses(self) -> Array:
        """[N]: the probability of every response."""
        return self.chosen.prod(axis=1)

    @property
    def logprobs(self) -> Array:
        """[N, T]: what an engine reports of every response's tokens, -inf for what it cannot say."""
        with np.errstate(divide="ignore"):
            return np.log(self.chosen)

    @property
    def logits(self) -> Array:
        """[N, T, V]: the same of the whole vocabulary."""
        with np.errstate(divide="ignore"):
            return np.log(self.conditionals)

    def expected(self, of_context: Array) -> float:
        """Return the mean per token, over responses of this model, of [N, T] values of their contexts."""
        per_response = np.where(self.language.mask, of_context, 0.0).sum(axis=1)
        n_tokens = self.language.mask.sum(axis=1)
        return float((self.responses * per_response).sum() / (self.responses * n_tokens).sum())


def random_model(random: np.random.Generator, language: Language, *, sharpness: float = 1.0) -> Model:
    """Return a model of random logits; at a sharpness of 10 most contexts leave no doubt."""
    return _of_logits(language, [sharpness * random.normal(size=shape) for shape in _shapes(language)])


def near(model: Model, random: np.random.Generator, *, noise: float) -> Model:
    """Return a model whose logits are the given one's, with noise: every token has a probability."""
    logits = [np.log(np.maximum(table, LEAST_PROBABILITY)) for table in model.tables]
    return _of_logits(model.language, [a + noise * random.normal(size=a.shape) for a in logits])


def moved(model: Model, direction: list[Array], *, by: float) -> Model:
    """Return the model with every logit moved along a direction; what has no probability keeps none."""
    tables = [table * np.exp(by * step) for table, step in zip(model.tables, direction, strict=True)]
    return Model(model.language, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def truncated(model: Model, random: np.random.Generator) -> Model:
    """Return the model without one token in every context, as top-k makes of it."""
    tables = [table.copy() for table in model.tables]
    for table in tables:
        np.put_along_axis(table, random.integers(table.shape[1], size=(len(table), 1)), 0.0, -1)
    return Model(model.language, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def countable_model(random: np.random.Generator, language: Language, *, parts: int, truncates: bool) -> Model:
    """Return a model whose probabilities are multiples of 1/parts; 0 among them if it truncates."""
    least = 0 if truncates else 1
    spread = parts - least * language.vocabulary
    even = np.full(language.vocabulary, 1 / language.vocabulary)
    return Model(
        language,
        tuple((least + random.multinomial(spread, even, size=rows)) / parts for rows, _ in _shapes(language)),
    )


def census(model: Model, *, parts: int) -> Array:
    """Return the responses, by number, each as often as a countable model gives it among parts**T responses.

    The batch mean of anything is then its expectation.
    """
    counts = model.responses * parts**model.language.horizon
    return np.repeat(np.arange(len(counts)), np.rint(counts).astype(int))


def _shapes(language: Language) -> list[tuple[int, int]]:
    return [(language.vocabulary**t, language.vocabulary) for t in range(language.horizon)]


def _of_logits(language: Language, logits: list[Array]) -> Model:
    tables = [np.exp(table - table.max(axis=1, keepdims=True)) for table in logits]
    floored = [np.maximum(table / table.sum(axis=1, keepdims=True), LEAST_PROBABILITY) for table in tables]
    return Model(language, tuple(table / table.sum(axis=1, keepdims=True) for table in floored))

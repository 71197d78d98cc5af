"""The task of the second testbed: the running sums, modulo 7, of 3 to 6 digits, ended by EOS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BASE = 7
MIN_DIGITS, MAX_DIGITS = 3, 6
EOS, SEPARATOR, FILLER = BASE, BASE + 1, BASE + 2
VOCABULARY = BASE + 3
N_OUTPUTS = BASE + 1
"""Digits and EOS can be sampled."""
PROMPT_LENGTH = MAX_DIGITS + 1
MAX_RESPONSE = 12


@dataclass(frozen=True, eq=False)
class SumPrompts:
    """B prompts [B, PROMPT_LENGTH], filled on the right and ended by the separator, and their number of digits [B]."""

    tokens: Ints
    n_digits: Ints

    def repeat(self, n: int) -> SumPrompts:
        """Return every prompt n times in a row."""
        return SumPrompts(self.tokens.repeat(n, axis=0), self.n_digits.repeat(n))

    @property
    def answers(self) -> Ints:
        """The right responses, [B, MAX_DIGITS + 1], filled after EOS."""
        digits = np.where(self.tokens[:, :MAX_DIGITS] < BASE, self.tokens[:, :MAX_DIGITS], 0)
        sums = np.concatenate([digits.cumsum(axis=1) % BASE, np.zeros((len(digits), 1), np.int64)], axis=1)
        at = np.arange(MAX_DIGITS + 1)
        sums[at == self.n_digits[:, None]] = EOS
        sums[at > self.n_digits[:, None]] = FILLER
        return sums


def draw_sums(n: int, rng: np.random.Generator) -> SumPrompts:
    """Return n prompts of uniform length and uniform digits."""
    n_digits = rng.integers(MIN_DIGITS, MAX_DIGITS + 1, n)
    tokens = rng.integers(0, BASE, (n, PROMPT_LENGTH))
    tokens[np.arange(PROMPT_LENGTH) >= n_digits[:, None]] = FILLER
    tokens[:, -1] = SEPARATOR
    return SumPrompts(tokens, n_digits)


def rewards_of(tokens: Ints, lengths: Ints, prompts: SumPrompts) -> Floats:
    """Return the reward of responses [B, MAX_RESPONSE]: 1 if exact, else at most 0.5 by the share of right tokens."""
    answers = prompts.answers
    counts = prompts.n_digits + 1
    at = np.arange(MAX_DIGITS + 1)
    right = (tokens[:, : MAX_DIGITS + 1] == answers) & (at < counts[:, None]) & (at < lengths[:, None])
    share = right.sum(axis=1) / counts
    return np.where((share == 1.0) & (lengths == counts), 1.0, 0.5 * share)

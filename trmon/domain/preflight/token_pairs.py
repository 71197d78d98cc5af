"""Pairs of log-probs that two engines give the same tokens, in the order of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.preflight.engine_scores import EngineScores, Rows
from trmon.domain.signals.columns_signals import columns_signals
from trmon_client.core import statistics
from trmon_client.core.inputs.token_validity import MAX_LOGPROB, MIN_LOGPROB


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenPairs:
    """The paired log-probs of B sequences, and the position of each token in the row of its engine."""

    rollout: Rows
    trainer: Rows
    rollout_positions: Rows
    trainer_positions: Rows

    @classmethod
    def at(cls, rollout: EngineScores, trainer: EngineScores, positions: list[tuple[Any, Any]]) -> TokenPairs:
        """Return the pairs at positions of both engines, one tuple for each sequence."""
        return cls(
            rollout=tuple(row[at] for row, (at, _) in zip(rollout.logprobs, positions, strict=True)),
            trainer=tuple(row[at] for row, (_, at) in zip(trainer.logprobs, positions, strict=True)),
            rollout_positions=tuple(at for at, _ in positions),
            trainer_positions=tuple(at for _, at in positions),
        )

    @property
    def n_tokens(self) -> int:
        """The number of pairs."""
        return sum(map(len, self.trainer))

    def shifted(self, by: int) -> TokenPairs:
        """Return the pairs of the rollout's log-prob at t + by and the trainer's at t; by is 1 or -1."""
        later, earlier = slice(1, None), slice(None, -1)
        of_rollout, of_trainer = (later, earlier) if by == 1 else (earlier, later)
        return TokenPairs(
            rollout=tuple(row[of_rollout] for row in self.rollout),
            trainer=tuple(row[of_trainer] for row in self.trainer),
            rollout_positions=tuple(row[of_rollout] for row in self.rollout_positions),
            trainer_positions=tuple(row[of_trainer] for row in self.trainer_positions),
        )

    def where(self, keep: Callable[[Any, Any], Any]) -> TokenPairs:
        """Return the pairs that a predicate of both rows [T_i] keeps."""
        kept = [keep(*pair) for pair in zip(self.rollout, self.trainer, strict=True)]
        fields = (self.rollout, self.trainer, self.rollout_positions, self.trainer_positions)
        picked = [tuple(row[at] for row, at in zip(rows, kept, strict=True)) for rows in fields]
        return TokenPairs(
            rollout=picked[0], trainer=picked[1], rollout_positions=picked[2], trainer_positions=picked[3]
        )

    def swapped(self) -> TokenPairs:
        """Return the pairs with the roles of the engines exchanged."""
        return TokenPairs(
            rollout=self.trainer,
            trainer=self.rollout,
            rollout_positions=self.trainer_positions,
            trainer_positions=self.rollout_positions,
        )

    def signals(self) -> dict[str, float]:
        """Return the signals of the pair mismatch by their full names, and the number of tokens."""
        columns = statistics.columns(rollout_logprobs=list(self.rollout), old_logprobs=list(self.trainer))
        return columns_signals(columns) | {"n_tokens": float(columns["n_tokens"].sum())}

    def flat(self) -> tuple[Any, Any]:
        """Return the log-probs of all sequences, [N] each."""
        return np.concatenate(self.rollout), np.concatenate(self.trainer)


def is_impossible(logp: Any) -> Any:
    """Return where a value is missing or no log-prob: NaN, or above 0 by more than rounding."""
    return np.isnan(logp) | (logp > MAX_LOGPROB)


def has_no_probability(logp: Any) -> Any:
    """Return where an engine gives a token no probability: -inf, or the sentinel that stands for it."""
    return logp <= MIN_LOGPROB

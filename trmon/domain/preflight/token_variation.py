"""The total variation of each token: exact from logits, else a lower bound from the sampled token."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from trmon.domain.preflight.engine_scores import EngineScores, Rows
from trmon.domain.preflight.token_pairs import TokenPairs
from trmon_client.core import divergence

TvIs = Literal["exact", "lower_bound"]


def token_variation(pairs: TokenPairs, *, rollout: EngineScores, trainer: EngineScores) -> tuple[Any, TvIs]:
    """Return the total variation of each pair, [N], and whether it is exact.

    Without the logits of both engines it is |p - q| of the token, which the variation never falls below.
    Source: formulas, sections 4 and 9 (mismatch budget).
    """
    if rollout.logits is None or trainer.logits is None or not pairs.n_tokens:
        of_rollout, of_trainer = map(np.exp, pairs.flat())
        return np.abs(of_rollout - of_trainer), "lower_bound"
    logits = _at(rollout.logits, pairs.rollout_positions), _at(trainer.logits, pairs.trainer_positions)
    # Each token as a sequence of its own, so that a column holds the value of a token.
    columns = divergence.exact(
        rollout_logits=logits[0], old_logits=logits[1], mask=np.ones((pairs.n_tokens, 1), bool), tv=True
    )
    return columns["sum_tv"], "exact"


def trainer_mass_outside(pairs: TokenPairs, *, rollout: EngineScores, trainer: EngineScores) -> float | None:
    """Return the mean probability that the trainer gives to tokens which the rollout cannot sample; None unknown."""
    if rollout.logits is None or trainer.logits is None or not pairs.n_tokens:
        return None
    of_rollout = _at(rollout.logits, pairs.rollout_positions)[:, 0]
    of_trainer = _at(trainer.logits, pairs.trainer_positions)[:, 0]
    p = np.exp(of_trainer - of_trainer.max(axis=1, keepdims=True))
    return float(np.mean(np.where(np.isneginf(of_rollout), p, 0.0).sum(axis=1) / p.sum(axis=1)))


def _at(logits: Rows, positions: Rows) -> Any:
    """Return the logits at positions, [N, 1, V]."""
    return np.concatenate([row[at] for row, at in zip(logits, positions, strict=True)])[:, None]

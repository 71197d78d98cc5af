"""The tokens on which two engines differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstToken:
    """One token: its sequence, its position in its row, both log-probs, and d, the trainer's minus the rollout's."""

    sequence: int
    position: int
    rollout_logprob: float
    trainer_logprob: float
    d: float
    token_id: int | None = None


def worst_tokens(rollout: Any, trainer: Any, *, sequences: Any, positions: Any, n: int) -> tuple[WorstToken, ...]:
    """Return the n tokens with the largest |d|, largest first.

    Args: rollout, trainer: log-probs [N], nats; sequences, positions: where each token is, [N].
    """
    d = trainer - rollout
    order = np.argsort(-np.abs(d), kind="stable")[:n]
    return tuple(
        WorstToken(
            sequence=int(sequences[at]),
            position=int(positions[at]),
            rollout_logprob=float(rollout[at]),
            trainer_logprob=float(trainer[at]),
            d=float(d[at]),
        )
        for at in order
    )

"""A tiny trainer, with or without monitors; it has no torch, so that its process starts in a fraction of the time."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import numpy as np

from trmon_client.monitor import Monitor

N_SEQUENCES = 16
LENGTH = 8
N_UPDATES = 2
STEPS = 12


def train(*monitors: Monitor, steps: int = STEPS, before_step: Callable[[int], object] = id) -> str:
    """Return a digest of the trained weights; whatever the monitors raise ends the training.

    The trainer draws from the generators that every library shares, and uses the masks that the monitors return.
    """
    random.seed(0)
    np.random.seed(0)
    weights = np.zeros((N_SEQUENCES, LENGTH))
    for step in range(steps):
        before_step(step)
        for update in range(N_UPDATES):
            mu = np.random.normal(-random.uniform(1.0, 2.0), 0.1, weights.shape)
            mask = np.ones(N_SEQUENCES)
            for monitor in monitors:
                decision = monitor.log_batch(
                    step=step, update=update, rollout_logprobs=mu, logprobs=mu - 1e-3 * update, rewards=mu[:, 0],
                    mask=np.ones_like(mu), advantages=mu[:, 1], chunks=1,
                )  # fmt: skip
                mask = np.where(decision.mask, mask, 0.0)
            weights += mask[:, None] * mu
        for monitor in monitors:
            monitor.log_scalars(step, {"loss": weights.mean()})
    return hashlib.sha256(weights.tobytes()).hexdigest()


def tell(**values: object) -> None:
    """Print values for the test that runs this process."""
    for name, value in values.items():
        print(f"{name}={value}", flush=True)

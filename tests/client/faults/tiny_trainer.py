"""A tiny trainer: a bigram language model that learns by policy gradient, with or without a monitor."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

import numpy as np
import torch

from trmon_client.monitor import Monitor

N_TOKENS = 11
N_SEQUENCES = 16
LENGTH = 8
N_UPDATES = 2
STEPS = 12


def train(*monitors: Monitor, steps: int = STEPS, before_step: Callable[[int], object] = id) -> str:
    """Return a digest of the trained parameters; whatever the monitors raise ends the training.

    The trainer draws from the generators that every library shares: a number that the client drew would change it.
    """
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    policy = torch.nn.Embedding(N_TOKENS, N_TOKENS)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    starts = list(range(N_SEQUENCES))
    for step in range(steps):
        before_step(step)
        random.shuffle(starts)
        tokens, mu = _rollout(policy, starts)
        rewards = (tokens[:, 1:] % 2).float().mean(-1) + float(np.random.normal(0.0, 0.01))
        advantages = rewards - rewards.mean()
        for update in range(N_UPDATES):
            pi = _logprobs(policy, tokens)
            per_sequence_loss = -((pi - mu).exp() * advantages[:, None]).sum(-1)
            for monitor in monitors:
                decision = monitor.log_batch(
                    step=step, update=update, rollout_logprobs=mu, logprobs=pi.detach(), rewards=rewards,
                    mask=torch.ones_like(mu, dtype=torch.bool), advantages=advantages, chunks=1,
                )  # fmt: skip
                per_sequence_loss = torch.where(decision.mask, per_sequence_loss, 0)
            optimizer.zero_grad()
            loss = per_sequence_loss.sum() / N_SEQUENCES
            loss.backward()
            optimizer.step()
        for monitor in monitors:
            monitor.log_scalars(step, {"loss": loss})
    return hashlib.sha256(policy.weight.detach().numpy().tobytes()).hexdigest()


def _rollout(policy: torch.nn.Embedding, starts: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = [torch.tensor(starts) % N_TOKENS]
    with torch.no_grad():
        for _ in range(LENGTH):
            tokens.append(torch.multinomial(policy(tokens[-1]).softmax(-1), 1).squeeze(-1))
        sequences = torch.stack(tokens, dim=1)
        return sequences, _logprobs(policy, sequences)


def _logprobs(policy: torch.nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
    return policy(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)

"""Rollouts from which the tests build the batch of each framework, and what must arrive of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.client.server import Peer
from trmon_client.core import statistics, wire
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals

LENGTHS = (4, 2, 3, 1)
LENGTH = max(LENGTHS)
GROUPS = (0, 0, 1, 1)
SCORES = (1.0, 0.0, 0.5, 0.25)
TRUNCATED = (True, False, False, False)


@dataclass(frozen=True)
class Rollouts:
    """Log-probs of the sampler and of the trainer, [B, T], 0 where no token counts, and their mask and advantages."""

    mu: torch.Tensor
    old: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    rewards: torch.Tensor

    @classmethod
    def generate(cls, *, noise: float = 0.1) -> Rollouts:
        """Return two groups of two rollouts."""
        generator = torch.Generator().manual_seed(0)
        mask = (torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]).long()
        mu = -torch.empty(mask.shape).exponential_(generator=generator)
        old = (mu + noise * torch.randn(mu.shape, generator=generator)).clamp(max=0)
        rewards = torch.tensor(SCORES)
        advantages = (rewards - rewards.view(2, 2).mean(1).repeat_interleave(2))[:, None] * mask
        return cls(mu * mask, old * mask, mask, advantages, rewards)

    def expected(self, pair: str = "mismatch") -> dict[str, float]:
        """Return the signals of a pair: of the sampler and pi_old, or (`total`) of the sampler and pi."""
        name = "old_logprobs" if pair == "mismatch" else "logprobs"
        given = {"rollout_logprobs": self.mu, name: self.old, "mask": self.mask}
        return batch_signals.compute(statistics.columns(**given))


def reported(server: Peer, *, n: int = 1) -> tuple[list[Any], Columns]:
    """Return the first n reports, and all their columns in one."""
    reports = server.wait_for(wire.Report, n=n)
    return reports, Columns.merge(*(wire.unpack_columns(report) for report in reports))


def numbers(server: Peer) -> list[tuple[int, dict[str, Any]]]:
    """Return the numbers that a finished run has sent, call by call, with their steps."""
    server.wait_for(wire.Finish)
    return [(message.step, message.values) for message in sorted(server.of(wire.Scalars), key=lambda one: one.sequence)]


def checkpoints(server: Peer, *, n_pauses: int = 1) -> list[tuple[int, str]]:
    """Return the step and the path of each checkpoint among a number of pauses."""
    told = [pause.checkpoint for pause in server.wait_for(wire.Pause, n=n_pauses)]
    return [(one.step, one.path) for one in told if one]


def assert_reported(columns: Columns, rollouts: Rollouts, *, pair: str = "mismatch", has: tuple[str, ...] = ()) -> None:
    """Check the columns against the rollouts. Args: has: of rewards, group_ids, truncated."""
    found, expected = batch_signals.compute(columns), rollouts.expected(pair)
    names = [f"{pair}_{name}" for name in ("kl_k1", "kl_k3", "ess_token", "prob_diff_max")]
    assert columns.pairs == (pair,)
    assert {name: found[name] for name in names} == pytest.approx({name: expected[name] for name in names}, rel=1e-5)
    assert columns["n_tokens"].tolist() == list(LENGTHS)
    np.testing.assert_allclose(columns["advantage"], rollouts.advantages[:, 0], rtol=1e-5, atol=1e-6)
    if "rewards" in has:
        assert columns["reward"].tolist() == pytest.approx(SCORES)
    if "group_ids" in has:
        groups = columns["group_id"].tolist()
        assert [groups.index(group) for group in groups] == [0, 0, 2, 2]
    if "truncated" in has:
        assert [bool(value) for value in columns["truncated"]] == list(TRUNCATED)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return copies of all tensors in nested mappings, sequences and objects, in order."""
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()]
    if isinstance(value, str | bytes | int | float | None):
        return []
    values = value.values() if hasattr(value, "values") else value if isinstance(value, list | tuple) else None
    return [tensor for item in (vars(value).values() if values is None else values) for tensor in tensors_of(item)]


def assert_bit_identical(before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
    """Check that two lists hold the same tensors to the last bit."""
    assert len(before) == len(after) > 0
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype
        assert (
            torch.equal(one.nan_to_num(7.25), other.nan_to_num(7.25))
            if one.is_floating_point()
            else (one == other).all()
        )


def swift_batches(rollouts: Rollouts, batch: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the rollouts in two micro-batches of ms-swift without advantages. Args: batch: the class of one."""
    return [
        {
            "model_inputs": {},
            "grpo_batch": batch(
                completion_mask=rollouts.mask[rows].bool(),
                truncated_mask=torch.tensor(TRUNCATED[rows]),
                seq_lengths=rollouts.mask[rows].sum(1),
                old_per_token_logps=rollouts.old[rows],
                rollout_per_token_logps=rollouts.mu[rows],
            ),
        }
        for rows in (slice(0, 2), slice(2, 4))
    ]

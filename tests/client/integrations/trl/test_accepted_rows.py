"""What TRL's loss is computed from under hard and soft policies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.client.trainer import batch, settings
from trmon_client.batch_decision import BatchDecision
from trmon_client.integrations.trl.rollout_hooks import restrict_to_accepted
from trmon_client.monitor import Monitor

HARD = {"name": "hard", "criteria": [{"statistic": "max_abs_d", "upper": 0.5}]}
SOFT = HARD | {"name": "soft", "soft_tau": 2.0}


def decided(tmp_path: Path, policy: dict[str, Any]) -> tuple[BatchDecision, dict[str, torch.Tensor]]:
    given = {name: torch.from_numpy(array) for name, array in batch(far=(1,), dead=(2,)).items()}
    monitor = Monitor(settings(tmp_path, mode="enforce", policy=policy))
    decision = monitor.log_batch(step=0, **given)
    monitor.close()
    return decision, given


@pytest.mark.parametrize("is_rloo", [False, True], ids=["grpo", "rloo"])
@pytest.mark.parametrize("policy", [HARD, SOFT], ids=["hard", "soft"])
def test_advantages_have_the_weights_of_their_sequences(
    tmp_path: Path, policy: dict[str, Any], *, is_rloo: bool
) -> None:
    decision, given = decided(tmp_path, policy)
    mu, pi = given["rollout_logprobs"], given["logprobs"]
    inputs = {"advantages": torch.tensor([1.0, -2.0, 3.0, 4.0]), "old_per_token_logps": mu}
    inputs |= {"old_logps": mu.sum(-1)} if is_rloo else {}
    restrict_to_accepted(decision, inputs, (pi, None))
    excess = (pi - mu).abs().amax(-1)[1].item() / 0.5 - 1
    weight = math.exp(-excess / 2) if policy is SOFT else 0.0
    advantages = inputs["advantages"]
    of_sequences = advantages if advantages.dim() == 1 else advantages[:, 0]
    assert of_sequences.tolist() == pytest.approx([1.0, -2.0 * weight, 0.0, 4.0], rel=1e-6)
    assert torch.equal(inputs["old_per_token_logps"][2], pi[2])
    assert torch.equal(inputs["old_per_token_logps"][1], mu[1] if policy is SOFT else pi[1])

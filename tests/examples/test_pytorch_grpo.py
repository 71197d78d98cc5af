"""Plain PyTorch: every update of every step arrives whole, whatever its minibatches and micro-batches."""

import httpx
import pytest

from tests.examples.running_example import assert_healthy, batches, group_sizes, run_example

pytestmark = pytest.mark.timeout(600)

STEPS, UPDATES = 50, 4


def test_rollouts_and_updates_are_batches_of_their_own_and_the_policy_learns(client: httpx.Client) -> None:
    run_example(client, "pytorch_grpo")
    found = batches(client, "pytorch_grpo", n=STEPS * (1 + UPDATES))
    assert_healthy(client, "pytorch_grpo")
    updates = [None, *range(UPDATES)]
    assert {key: batch["n_sequences"] for key, batch in found.items()} == {
        (step, update): 64 if update is None else 32 for step in range(STEPS) for update in updates
    }
    assert group_sizes(client, "pytorch_grpo", step=1, update=None) == dict.fromkeys(range(16), 4)

    rollout, first, last = (found[2, update] for update in (None, 0, UPDATES - 1))
    assert rollout["primary_pair"] == "mismatch"
    assert 0 < rollout["signals"]["mismatch_kl_k3"] < 1e-4
    assert first["signals"]["staleness_kl_k3"] < last["signals"]["staleness_kl_k3"]
    assert rollout["signals"]["version_lag_mean"] == 0.0
    assert {"grad_norm", "loss"} <= rollout["scalars"].keys()

    rewards = [found[step, None]["signals"]["reward_mean"] for step in range(STEPS)]
    assert min(rewards[-5:]) > 2 * max(rewards[:5])

"""Every example ends without a finding on its default settings, and what it shows is what the service has.

Those of other frameworks: `tests/peers/examples`.
"""

import httpx
import pytest

from tests.examples.running_example import RANKS, TORCHRUN, assert_healthy, batches, group_sizes, path_of, run_example

pytestmark = pytest.mark.timeout(600)

STEPS = 50


def test_updates_of_plain_pytorch_arrive_whole_whatever_its_micro_batches_and_the_policy_learns(
    client: httpx.Client,
) -> None:
    run_example(client, "pytorch_grpo")
    n_updates = 4
    found = batches(client, "pytorch_grpo", n=STEPS * (1 + n_updates))
    assert_healthy(client, "pytorch_grpo")
    updates = [None, *range(n_updates)]
    assert {key: batch["n_sequences"] for key, batch in found.items()} == {
        (step, update): 64 if update is None else 32 for step in range(STEPS) for update in updates
    }
    assert group_sizes(client, "pytorch_grpo", step=1, update=None) == dict.fromkeys(range(16), 4)

    rollout, first, last = (found[2, update] for update in (None, 0, n_updates - 1))
    assert rollout["primary_pair"] == "mismatch"
    assert 0 < rollout["signals"]["mismatch_kl_k3"] < 1e-4
    assert first["signals"]["staleness_kl_k3"] < last["signals"]["staleness_kl_k3"]
    assert rollout["signals"]["version_lag_mean"] == 0.0
    assert {"grad_norm", "loss"} <= rollout["scalars"].keys()

    rewards = [found[step, None]["signals"]["reward_mean"] for step in range(STEPS)]
    assert min(rewards[-5:]) > 2 * max(rewards[:5])


def test_two_ranks_make_whole_batches_of_distinct_groups(client: httpx.Client) -> None:
    run_example(client, "ddp_grpo", launcher=TORCHRUN)
    n_updates = 2
    found = batches(client, "ddp_grpo", n=STEPS * n_updates)
    assert_healthy(client, "ddp_grpo")
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(n_updates)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(RANKS, RANKS * 64)}
    assert group_sizes(client, "ddp_grpo", step=2, update=1) == dict.fromkeys(range(RANKS * 16), 4)

    (attempt,) = client.get(f"{path_of('ddp_grpo')}/attempts").json()["items"]
    assert (attempt["world_size"], attempt["ranks_unverified"]) == (RANKS, False)


def test_the_lag_of_two_processes_is_what_the_trainer_saw(client: httpx.Client) -> None:
    printed = run_example(client, "async_grpo")
    found = batches(client, "async_grpo", n=STEPS)
    assert_healthy(client, "async_grpo")
    lags = [found[step, None]["signals"]["version_lag_mean"] for step in range(STEPS)]
    assert lags == [float(line.split()[-3]) for line in printed.splitlines() if line.startswith("step")]
    # Two sets of batches with the first weights; then the sampler is one set ahead.
    assert lags == [0.0, 1.0, *[2.0, 3.0] * 24]
    assert {batch["primary_pair"] for batch in found.values()} == {"total"}


def test_turns_of_an_agents_lagging_weights_are_masked_and_tool_tokens_count_nowhere(client: httpx.Client) -> None:
    run_example(client, "agent_grpo")
    found = batches(client, "agent_grpo", n=STEPS)
    assert_healthy(client, "agent_grpo")
    # Without a lag, at steps 0 and 16, no turn is off-policy; later the last turns of every other trace are.
    rates = [found[step, None]["signals"]["turn_mask_rate"] for step in range(STEPS)]
    assert rates[0] == rates[16] == 0.0
    assert max(rates) > 0.05
    assert {found[step, None]["signals"]["mask_rate"] for step in range(STEPS)} == {0.0}

    step = max(range(STEPS), key=rates.__getitem__)
    query = {"turns": "true", "limit": 500}
    sequences = client.get(f"{path_of('agent_grpo')}/batches/{step}/sequences", params=query).json()
    counts = sequences["turn_counts"]
    assert set(counts["n_turns"]) <= {1, 2, 3}
    rejected = [reasons.count("turn_mean_k3") for reasons in (turns["reasons"] for turns in sequences["turns"])]
    assert counts["n_rejected"] == rejected
    # Only rows of lagging weights, and of those only the last turn.
    assert {i % 2 for i, n in enumerate(rejected) if n} == {1}
    assert {
        turns["reasons"].index("turn_mean_k3") for turns in sequences["turns"] if "turn_mean_k3" in turns["reasons"]
    } == {2}
    for turns, n_tokens in zip(sequences["turns"], sequences["columns"]["n_tokens"], strict=True):
        assert sum(turns["columns"]["n_tokens"]) == n_tokens
        assert max(turns["columns"]["n_tokens"]) <= 3

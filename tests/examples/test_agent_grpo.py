"""An agent: the turns that lagging weights sampled are masked, and the service decides them alike."""

import httpx
import pytest

from tests.examples.running_example import batches, path_of, run_example

pytestmark = pytest.mark.timeout(600)

STEPS = 24


def test_turns_of_lagging_weights_are_masked_and_tool_tokens_count_nowhere(client: httpx.Client) -> None:
    run_example(client, "agent_grpo", STEPS)
    found = batches(client, "agent_grpo", n=STEPS)
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

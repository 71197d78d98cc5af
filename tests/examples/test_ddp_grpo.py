"""DistributedDataParallel: the ranks make one batch of each update."""

import httpx
import pytest

from tests.examples.running_example import RANKS, TORCHRUN, batches, group_sizes, path_of, run_example

pytestmark = pytest.mark.timeout(600)

STEPS, UPDATES = 3, 2


def test_two_ranks_make_whole_batches_of_distinct_groups(client: httpx.Client) -> None:
    run_example(client, "ddp_grpo", STEPS, launcher=TORCHRUN)
    found = batches(client, "ddp_grpo", n=STEPS * UPDATES)
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(UPDATES)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(RANKS, RANKS * 64)}
    assert group_sizes(client, "ddp_grpo", step=2, update=1) == dict.fromkeys(range(RANKS * 16), 4)

    (attempt,) = client.get(f"{path_of('ddp_grpo')}/attempts").json()["items"]
    assert (attempt["world_size"], attempt["ranks_unverified"]) == (RANKS, False)

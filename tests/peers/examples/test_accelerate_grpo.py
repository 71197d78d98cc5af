"""Accelerate: two processes and their accumulation make whole updates."""

import httpx
import pytest

from tests.examples.running_example import RANKS, TORCHRUN, batches, group_sizes, run_example

pytestmark = pytest.mark.timeout(900)

STEPS, UPDATES = 3, 2


def test_accumulated_micro_batches_of_two_processes_are_one_update(service: httpx.Client) -> None:
    run_example(service, "accelerate_grpo", STEPS, launcher=TORCHRUN)
    found = batches(service, "accelerate_grpo", n=STEPS * UPDATES)
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(UPDATES)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(RANKS, RANKS * 64)}
    assert group_sizes(service, "accelerate_grpo", step=2, update=1) == dict.fromkeys(range(RANKS * 16), 4)

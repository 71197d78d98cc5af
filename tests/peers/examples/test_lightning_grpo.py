"""Lightning: the module's updates arrive, of one process and of two."""

import httpx
import pytest

from tests.examples.running_example import batches, group_sizes, run_example

pytestmark = pytest.mark.timeout(900)

STEPS, UPDATES = 3, 4


@pytest.mark.parametrize("devices", [1, 2])
def test_updates_of_all_devices_are_whole(service: httpx.Client, devices: int) -> None:
    run_example(service, "lightning_grpo", STEPS, devices)
    found = batches(service, "lightning_grpo", n=STEPS * UPDATES)
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(UPDATES)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(devices, devices * 32)}
    assert sum(group_sizes(service, "lightning_grpo", step=1, update=0).values()) == devices * 32
    assert found[2, 0]["signals"]["staleness_kl_k3"] < found[2, 3]["signals"]["staleness_kl_k3"]

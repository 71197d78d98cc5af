"""Ray: learners report as ranks of one run, whatever processes they start."""

import httpx
import pytest

from tests.examples.running_example import batches, group_sizes, path_of, run_example

pytestmark = pytest.mark.timeout(900)

LEARNERS, STEPS, UPDATES = 2, 3, 2


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_learners_with_a_pool_of_processes_are_one_trainer(
    service: httpx.Client, start_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # Ray's workers otherwise wait for everything else on the machine
    run_example(service, "ray_grpo", STEPS, start_method)
    found = batches(service, "ray_grpo", n=STEPS * UPDATES)
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(UPDATES)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(LEARNERS, LEARNERS * 64)}
    assert group_sizes(service, "ray_grpo", step=2, update=0) == dict.fromkeys(range(LEARNERS * 16), 4)
    (attempt,) = service.get(f"{path_of('ray_grpo')}/attempts").json()["items"]
    assert (attempt["world_size"], attempt["ranks_unverified"]) == (LEARNERS, False)

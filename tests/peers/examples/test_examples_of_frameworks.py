"""The examples of Accelerate, Lightning and Ray: all ranks make whole updates of one run, without a finding."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.examples.running_example import (
    RANKS,
    TORCHRUN,
    assert_healthy,
    batches,
    group_sizes,
    path_of,
    run_example,
)

pytestmark = pytest.mark.timeout(900)

STEPS, WHOLE_STEPS = 3, 50


@pytest.fixture(autouse=True)
def hasty_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers otherwise wait for everything else on the machine."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


def whole_batches(
    service: httpx.Client, name: str, *, updates: int, ranks: int, sequences: int
) -> dict[tuple[int, int], Any]:
    """Return the batches of STEPS steps, each of which has the sequences of every rank."""
    found: dict[tuple[int, int], Any] = batches(service, name, n=STEPS * updates)
    assert found.keys() == {(step, update) for step in range(STEPS) for update in range(updates)}
    assert {(batch["n_ranks"], batch["n_sequences"]) for batch in found.values()} == {(ranks, ranks * sequences)}
    return found


def test_accumulated_micro_batches_of_two_processes_are_one_update(service: httpx.Client) -> None:
    run_example(service, "accelerate_grpo", STEPS, launcher=TORCHRUN)
    whole_batches(service, "accelerate_grpo", updates=2, ranks=RANKS, sequences=64)
    assert group_sizes(service, "accelerate_grpo", step=2, update=1) == dict.fromkeys(range(RANKS * 16), 4)


@pytest.mark.parametrize("devices", [1, 2])
def test_updates_of_all_devices_of_lightning_are_whole(service: httpx.Client, devices: int) -> None:
    run_example(service, "lightning_grpo", STEPS, devices)
    found = whole_batches(service, "lightning_grpo", updates=4, ranks=devices, sequences=32)
    assert sum(group_sizes(service, "lightning_grpo", step=1, update=0).values()) == devices * 32
    assert found[2, 0]["signals"]["staleness_kl_k3"] < found[2, 3]["signals"]["staleness_kl_k3"]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_learners_of_ray_with_a_pool_of_processes_are_one_trainer(service: httpx.Client, start_method: str) -> None:
    run_example(service, "ray_grpo", STEPS, start_method)
    whole_batches(service, "ray_grpo", updates=2, ranks=2, sequences=64)
    assert group_sizes(service, "ray_grpo", step=2, update=0) == dict.fromkeys(range(2 * 16), 4)
    (attempt,) = service.get(f"{path_of('ray_grpo')}/attempts").json()["items"]
    assert (attempt["world_size"], attempt["ranks_unverified"]) == (2, False)


@pytest.mark.parametrize(
    ("name", "launcher", "updates"), [("accelerate_grpo", TORCHRUN, 2), ("lightning_grpo", (), 4), ("ray_grpo", (), 2)]
)
def test_an_example_with_its_default_settings_ends_without_a_finding(
    service: httpx.Client, name: str, launcher: tuple[str, ...], updates: int
) -> None:
    run_example(service, name, launcher=launcher)
    batches(service, name, n=WHOLE_STEPS * updates)
    assert_healthy(service, name)

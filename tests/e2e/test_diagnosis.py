"""The lab's injections, trained for real and diagnosed by the service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.injections import Injection, Onset, injected
from trmon.lab.grpo.watched_experiment import train_experiment_watched

CAUSES = {
    Injection.QUANTISE: ("A",),
    Injection.ROUTER: ("M",),
    Injection.PAD: ("A'",),
    Injection.SUPPORT: ("A''",),
    Injection.STALE: ("B",),
    Injection.LR: ("G",),
    Injection.TEMPERATURE: ("T",),
    Injection.REWARD: ("R", "S"),  # a policy that is paid for wrong answers scatters
    Injection.NAN: ("N",),
    Injection.ENTROPY: ("S",),
    Injection.LENGTH: ("L",),
}
AS_LONG_AS_NEEDED = 40
"""The steps after which all but the growth of the lengths is known: 20 for baselines, 20 for what must last."""

LATE = {Injection.LR, Injection.REWARD, Injection.NAN, Injection.ENTROPY, Injection.LENGTH}
SLOW = {Injection.REWARD: 40, Injection.ENTROPY: 66}
"""Steps that a finding over averages needs after the onset."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    service = ThreadedService(tmp_path_factory.mktemp("service") / "data")
    with service.client() as client:
        yield client
    service.stop()


def onset_step(injection: Injection) -> int:
    """Return the first step of an injection.

    A new optimizer's first steps are large too; finding G counts them for 20 steps, which the findings of a collapse
    compare with.
    """
    return 24 if injection in LATE else 12


def short(injection: Injection) -> ExperimentConfig:
    """A few healthy steps, a few to full severity, and a few of it."""
    first = onset_step(injection)
    return injected(injection, seed=0, n_steps=first + SLOW.get(injection, 24), onset=Onset(first, ramp_steps=8))


def diagnosed(client: httpx.Client, config: ExperimentConfig, *, name: str) -> dict[str, Any]:
    """Train as configured, wait until the service has finished with the run, and return its diagnosis."""
    for _ in train_experiment_watched(config, url=str(client.base_url).rstrip("/"), project="lab", name=name):
        pass
    path = f"/api/v1/runs/lab/{name}"
    eventually(lambda: client.get(path).json(), lambda run: run["state"] == "finished")
    found: dict[str, Any] = client.get(f"{path}/diagnosis").json()
    return found


@pytest.mark.parametrize("injection", CAUSES, ids=lambda injection: injection.value)
def test_the_cause_of_an_injection_is_named(client: httpx.Client, injection: Injection) -> None:
    config = short(injection)
    found = diagnosed(client, config, name=injection.value)
    assert found["primary"] in CAUSES[injection]
    assert onset_step(injection) <= found["observed"][0]["since_step"] < config.n_updates


def test_nothing_is_found_in_a_healthy_run(client: httpx.Client) -> None:
    found = diagnosed(client, injected(None, seed=0, n_steps=AS_LONG_AS_NEEDED), name="healthy")
    assert (found["primary"], found["observed"]) == ("unknown", [])
    assert [lost["finding"] for lost in found["unknown"]] == ["F"]

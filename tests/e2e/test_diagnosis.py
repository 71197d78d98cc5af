"""The lab's injections, trained for real and then diagnosed by the service.

The demo trains `stale`, `reward` and a healthy run. Each run here is sent at once when it has ended, which the service
reads in a few passes instead of one or more a step.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.fixtures.command import run_here
from tests.fixtures.waiting import eventually
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import train_experiment_watched
from trmon.lab.grpo.injections import Injection, Onset, injected

CAUSES = {
    Injection.QUANTISE: "engine_mismatch",
    Injection.ROUTER: "moe_routing",
    Injection.PAD: "corrupt_logprobs",
    Injection.SUPPORT: "support_shift",
    Injection.LR: "step_too_large",
    Injection.TEMPERATURE: "temperature",
    Injection.NAN: "not_a_number",
    Injection.ENTROPY: "entropy_explosion",
    Injection.LENGTH: "cut_at_limit",
}
LATE = {Injection.LR, Injection.NAN, Injection.ENTROPY, Injection.LENGTH}
AT_ONCE = (Injection.QUANTISE, Injection.PAD, Injection.LR, Injection.NAN)
SLOW = {Injection.ENTROPY: 66, Injection.SUPPORT: 30, Injection.TEMPERATURE: 38}
"""Steps that a finding over averages needs after the onset."""
SEEDS = {Injection.ENTROPY: 1}
"""Seeds other than 0, with which the reward falls before the entropy is seen to rise on some processors."""


def onset_step(injection: Injection) -> int:
    """Return the first step of an injection.

    A new optimizer's first steps are large too, and changes are against a run's first 20 steps.
    """
    return 24 if injection in LATE else 12


def short(injection: Injection) -> ExperimentConfig:
    """A few healthy steps, a few to full severity, and a few of it."""
    first = onset_step(injection)
    usual = 16 if injection in AT_ONCE else 24
    return injected(
        injection,
        seed=SEEDS.get(injection, 0),
        n_steps=first + SLOW.get(injection, usual),
        onset=Onset(first, ramp_steps=8),
    )


@pytest.mark.parametrize("injection", CAUSES, ids=lambda injection: injection.value)
def test_the_cause_of_an_injection_is_named(
    shared: httpx.Client, injection: Injection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, name = short(injection), injection.value
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path))
    for _ in train_experiment_watched(config, url=None, project="lab", name=name):
        pass
    sent = run_here("ingest", tmp_path, "--url", shared.base_url)
    assert sent.exit_code == 0, sent.output
    path = f"/api/v1/runs/lab/{name}"
    eventually(lambda: shared.get(path).json(), lambda run: run["state"] == "finished")
    found = shared.get(f"{path}/diagnosis").json()
    assert found["findings"], found["sentence"]
    assert found["findings"][0]["finding"] == CAUSES[injection], found["sentence"]
    assert onset_step(injection) - 3 <= found["since_step"] < config.n_updates

"""What verl logs is enough for a finding: a run of which only its Tracking reports, as in bypass mode."""

from __future__ import annotations

import math
from pathlib import Path

import httpx
import pytest

from tests.fixtures.waiting import eventually
from tests.peers.verl import drivers
from trmon_client.integrations.verl.tracking_hooks import TrackingHooks

RUN = "/api/v1/runs/math/tiny"
STEPS, ILL_FROM = 90, 40
HEALTHY = {
    "critic/score/mean": 0.8,
    "actor/entropy": 0.7,
    "actor/grad_norm": 1.0,
    "response_length/mean": 90.0,
    "response_length/clip_ratio": 0.0,
}


@pytest.mark.parametrize(
    ("cause", "ill"),
    [
        ("reward_collapse", {"critic/score/mean": 0.1}),
        ("cut_at_limit", {"response_length/clip_ratio": 0.7}),
        ("not_a_number", {"actor/grad_norm": math.nan}),
    ],
)
def test_what_verl_logs_is_found(
    hooks: TrackingHooks,
    service: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cause: str,
    ill: dict[str, float],
) -> None:
    monkeypatch.setenv("TRMON_URL", str(service.base_url).rstrip("/"))
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("TRMON_PROJECT", "math")
    monkeypatch.setenv("TRMON_RUN", "tiny")
    tracking = drivers.tracking(drivers.config())
    for step in range(STEPS):
        tracking.log({**HEALTHY, **(ill if step >= ILL_FROM else {})}, step=step)
    # The end waits 2 s for what is not sent yet; a machine may be too busy for all steps at once.
    eventually(
        lambda: service.get(RUN).json().get("last_step"), lambda step: (step or 0) >= STEPS - 2, timeout_seconds=90.0
    )
    tracking.finish(exit_code=0)
    run = eventually(lambda: service.get(RUN).json(), lambda run: run["state"] == "finished")
    assert run["incident"]["cause"] == cause
    assert ILL_FROM <= run["incident"]["since_step"] < STEPS

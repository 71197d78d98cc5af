"""The risk that a real service states at each step is the one that the stored file of the same run gives."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.lab.grpo.experiments import small
from trmon.domain.collapse_risk.risk_inputs import BASELINE_STEPS, INPUT_NAMES
from trmon.domain.collapse_risk.risk_model import CollapseRisk, shipped_model
from trmon.domain.collapse_risk.risk_reading import DRIVER_PREFIX, FIRST_ROWS, RISK
from trmon.lab.grpo.experiment_config import EngineMismatch, constant
from trmon.lab.grpo.grpo_trainer import train_experiment_watched
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.sweep.run_file import read_columns, read_record
from trmon_research.sweep.swept_run import sweep_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONFIG = small(
    n_updates=FIRST_ROWS + 40,
    n_prompts=8,
    n_responses=8,
    engine=EngineMismatch(router_noise=constant(1.0), lag=constant(2.0)),
)
PATIENCE_SECONDS = 400.0
RESTART_AT = 35
"""Past the baselines, so that the restart must find them again."""


@pytest.fixture(scope="module")
def estimates(tmp_path_factory: pytest.TempPathFactory) -> list[CollapseRisk | None]:
    """What the model says at each update of the stored run; None where it is silent."""
    file = tmp_path_factory.mktemp("swept") / "run.parquet"
    file.write_bytes(sweep_run(CONFIG).file)
    run, model = StoredRun.of(read_record(file), read_columns(file)), shipped_model()
    assert run.reward_error <= model.file.most_reward_error
    estimates = [model.estimate(features) for features in run.features]
    return [None if update < FIRST_ROWS - 1 or one.outside.any() else one for update, one in enumerate(estimates)]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedService]:
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path / "spool"))
    service = ThreadedService(tmp_path / "data")
    yield service
    service.stop()


def stream(service: ThreadedService, *, restart_at: int | None = None) -> dict[str, Any]:
    """Train the run against a service, and return its risk and drivers as the API gives them."""
    for outcome in train_experiment_watched(CONFIG, url=service.url, project="lab", name="streamed"):
        if outcome.update == restart_at:
            restart_without_checkpoint(service)
    with service.client() as client:
        path = "/api/v1/runs/lab/streamed"
        state = partial(_state, client, path)
        eventually(state, lambda run: run["state"] == "finished", timeout_seconds=PATIENCE_SECONDS)
        return signals(client, path)


def restart_without_checkpoint(service: ThreadedService) -> None:
    """Restart under the same address; no checkpoint is left, so that the state is rebuilt from the rows."""
    with service.client() as client:
        path = "/api/v1/runs/lab/streamed"
        state = partial(_state, client, path)
        eventually(state, lambda run: (run["last_step"] or 0) >= BASELINE_STEPS, timeout_seconds=PATIENCE_SECONDS)
    service.stop()
    with sqlite3.connect(service.data_dir / "trmon.sqlite") as database:
        assert database.execute("UPDATE run_state SET version = 0").rowcount == 1
    service.start(port=httpx.URL(service.url).port)


def _state(client: httpx.Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(path).json()
    return found


def signals(client: httpx.Client, path: str) -> dict[str, Any]:
    """Return each signal's value by update; None where a step has none."""
    names = [RISK, *(f"{DRIVER_PREFIX}{name}" for name in INPUT_NAMES)]
    given = client.get(f"{path}/signals", params={"names": ",".join(names), "points": 10_000})
    assert given.status_code == 200, given.text
    found = given.json()
    assert found["step"] == list(range(CONFIG.n_updates))
    return {name: bands["last"] for name, bands in found["signals"].items()}


@pytest.mark.parametrize("restart_at", [None, RESTART_AT], ids=["one worker", "a worker that starts again half-way"])
def test_a_streamed_run_has_the_risk_of_its_file_to_the_last_digit(
    service: ThreadedService, estimates: list[CollapseRisk | None], restart_at: int | None
) -> None:
    streamed = stream(service, restart_at=restart_at)
    assert streamed[RISK] == [one and one.probability for one in estimates]
    assert len({one.probability for one in estimates if one is not None}) > 25, "it moves"
    for place, name in enumerate(INPUT_NAMES):
        of_file = [math.nan if one is None else float(one.drivers[place]) for one in estimates]
        assert streamed[f"{DRIVER_PREFIX}{name}"] == [None if math.isnan(value) else value for value in of_file]

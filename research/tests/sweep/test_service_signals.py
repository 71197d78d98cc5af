"""The signals in a run's file are those that a real service stores of the same run."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.lab.grpo.experiments import small
from trmon.lab.grpo.experiment_config import EngineMismatch, constant
from trmon.lab.grpo.grpo_trainer import train_experiment_watched
from trmon_research.sweep.run_file import SIGNAL_COLUMNS, read_columns, rounded_column
from trmon_research.sweep.swept_run import sweep_run

pytestmark = pytest.mark.slow

CONFIG = small(n_updates=40, engine=EngineMismatch(router_noise=constant(1.0), lag=constant(2.0)))
OF_UPDATES = ("staleness_", "clip_fraction")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    service = ThreadedService(tmp_path_factory.mktemp("service") / "data")
    with service.client() as client:
        yield client
    service.stop()


def test_a_file_holds_what_a_service_stores(
    client: httpx.Client, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRMON_SPOOL_DIR", str(tmp_path_factory.mktemp("spool")))
    url = str(client.base_url).rstrip("/")
    for _ in train_experiment_watched(CONFIG, url=url, project="lab", name="streamed"):
        pass
    path = "/api/v1/runs/lab/streamed"
    eventually(lambda: client.get(path).json(), lambda run: run["state"] == "finished")
    names = [name for name in SIGNAL_COLUMNS if not name.startswith(OF_UPDATES)]
    stored = client.get(f"{path}/signals", params={"names": ",".join(names), "points": 10_000}).json()

    target = tmp_path_factory.mktemp("swept") / "run.parquet"
    target.write_bytes(sweep_run(CONFIG).file)
    swept = read_columns(target)
    assert stored["step"] == swept["update"].tolist()
    for name in names:
        if name in swept:
            streamed = np.array(stored["signals"][name]["last"], np.float64)
            np.testing.assert_array_equal(rounded_column(name, streamed), swept[name], err_msg=name)
    assert len(swept) > 25

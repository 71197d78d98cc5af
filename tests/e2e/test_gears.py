"""From one gear to the other: a live run moves from the embedded service to a fleet."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.fixtures.command import run_here
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, statuses, step_report, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RUN = f"/api/v1/runs/{MATH}"


def closed(client: httpx.Client) -> list[int]:
    """Return the steps of the closed batches, oldest first."""
    return [batch["step"] for batch in reversed(client.get(f"{RUN}/batches").json()["items"])]


@pytest.mark.server("postgres")
def test_a_live_run_goes_on_where_it_was(tmp_path: Path, postgres_url: str) -> None:
    embedded = ThreadedService(tmp_path / "data")
    with embedded.client() as client:
        train(client, steps=range(10), end=False)
        eventually(lambda: closed(client), lambda steps: steps == list(range(9)))
        before = client.get(f"{RUN}/signals", params={"names": "total_kl_k3", "to": 8}).json()["signals"]
    embedded.stop()

    archive = tmp_path / "archive"
    for moved in (
        run_here("export", "math", archive, "--data-dir", tmp_path / "data"),
        run_here("import", archive, database_url=postgres_url),
    ):
        assert moved.exit_code == 0, moved.stderr

    authenticator = ThreadedService(tmp_path / "unused", database_url=postgres_url)
    with authenticator.client() as client, WorkerProcess(postgres_url, log=tmp_path / "worker.log"):
        # The trainer sends again what it is not sure of, and continues.
        assert statuses(client, MATH, step_report(9)) == ["duplicate"]
        for step in range(10, 15):
            send_step(client, MATH, step=step)
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(14, None, 1)]))
        eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
        eventually(lambda: closed(client), lambda steps: steps == list(range(15)))
        after = client.get(f"{RUN}/signals", params={"names": "total_kl_k3", "to": 8}).json()["signals"]
    authenticator.stop()
    assert after == before

"""Quarantined parts of a run over HTTP: on its batch, in the fleet, in its alerts and in the service's metrics."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from tests.fixtures.messages import columns, report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

Serve = Callable[..., ThreadedService]
RUN = "/api/v1/runs/math/grpo"


@pytest.mark.parametrize("worker", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_damaged_report_is_shown_everywhere_and_the_run_continues(serve: Serve, worker: str) -> None:
    service = serve(worker=worker)
    with service.client() as client:
        train(client, steps=range(3), end=False)
        send(client, MATH, report(columns(2), step=3, world_size=2))
    service.stop()
    damage_the_newest_report(service)
    service.start()
    with service.client() as client:
        counted = [wire.ChunkCount(3, None, 1)]
        send(client, MATH, report(columns(2), step=3, rank=1, world_size=2, finished=counted))
        counted = [wire.ChunkCount(step, None, 1) for step in (2, 3)]
        send(client, MATH, report(columns(2), step=4, finished=counted))
        for step in (5, 6):
            send_step(client, MATH, step=step)
        batch = eventually(lambda: client.get(f"{RUN}/batches/3").json(), lambda batch: "quarantined" in batch)
        eventually(lambda: client.get(f"{RUN}/batches/5").status_code == 200)
        assert not batch["complete"]
        [entry] = batch["quarantined"]
        assert (entry["part"], entry["place"]) == ("report", "rank 0, chunk 0")
        assert entry["reason"].startswith("a stored report is damaged: ")
        assert client.get(f"{RUN}/batches/5").json()["quarantined"] == []
        sequences = client.get(f"{RUN}/batches/3/sequences").json()
        assert sequences["n_sequences"] == 2
        fleet = eventually(lambda: client.get(RUN).json()["status"], lambda run: bool(run["alerts"]))
        assert [alert["rule"] for alert in fleet["alerts"]] == ["batch_quarantined"]
        # A finding, once it is diagnosed, is named before it, and then without its step.
        assert "batch quarantined" in fleet["verdict"]["why"]
        assert fleet["alerts"][0]["step"] == 3
        assert 'trmon_quarantined_total{reason="report"} 1.0' in client.get("/metrics").text


def damage_the_newest_report(service: ThreadedService) -> None:
    """Overwrite the newest report in the database of a stopped service."""
    [path] = service.data_dir.glob("*.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE report SET payload = x'c1' WHERE id = (SELECT max(id) FROM report)")
    connection.close()

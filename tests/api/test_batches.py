"""A run's batches over HTTP: their sequences, the reasons for rejection, and quarantined parts."""

from __future__ import annotations

import sqlite3

import httpx
import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun, Serve, own_run
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset


def finish(run: OwnRun, *finished: wire.ChunkCount) -> None:
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=list(finished)))
    eventually(lambda: run.get()["state"], lambda state: state == "finished")


@pytest.fixture(scope="module")
def two_chunks(shared: httpx.Client) -> OwnRun:
    """A step of two chunks; the first chunk's second sequence is far off-policy, its third has bad log-probs."""
    run = own_run(shared)
    bad = columns(
        3, total_max_k3=np.array([0, 9, 0], "<f4"), mismatch_sum_k3=np.array([0.0, 9, 0]), n_invalid=np.array([0, 0, 2])
    )
    run.send(report(bad, step=4), report(columns(2), step=4, chunk=1))
    finish(run, wire.ChunkCount(4, None, 2))
    return run


def test_a_step_is_its_rollout_batch_or_else_its_last_update(run: OwnRun) -> None:
    run.send(*(report(columns(seed=update), step=1, update=update) for update in (0, 1)))
    run.send(report(step=2), report(columns(seed=9), step=2, update=0))
    counts = [wire.ChunkCount(1, 0, 1), wire.ChunkCount(1, 1, 1), wire.ChunkCount(2, None, 1), wire.ChunkCount(2, 0, 1)]
    finish(run, *counts)
    assert run.get("/batches/1")["update"] == 1
    assert run.get("/batches/1?update=0")["update"] == 0
    assert run.get("/batches/2")["update"] is None
    assert run.ask("GET", "/batches/2?update=5").status_code == 404


def test_sequences_are_ordered_by_chunk_with_their_reasons_and_what_was_compared(
    two_chunks: OwnRun,
) -> None:
    found = two_chunks.get("/batches/4/sequences?names=n_tokens,n_invalid")
    assert found["n_sequences"] == 5
    assert found["columns"] == {"n_tokens": [16] * 5, "n_invalid": [0, 0, 2, 0, 0]}
    active = found["decisions"][0]
    assert active["accepted"] == [True, False, False, True, True]
    assert active["reasons"] == [None, "mean_k3", "invalid_logprobs", None, None]
    window = two_chunks.get("/batches/4/sequences?names=n_invalid&first=1&limit=2")
    assert (window["first"], window["columns"]) == (1, {"n_invalid": [0, 2]})
    assert window["decisions"][0]["reasons"] == active["reasons"][1:3]
    read = {criterion["statistic"]: criterion for criterion in window["criteria"]}
    assert set(read) == {"max_binary_kl", "max_abs_d", "mean_k3"}
    mean_k3 = read["mean_k3"]
    assert (mean_k3["values"], mean_k3["lower"], mean_k3["upper"]) == ([9 / 16, 0.0], None, 0.02)


def test_values_that_json_lacks_are_null_or_strings(run: OwnRun) -> None:
    run.send(report(columns(3, reward=np.array([np.nan, np.inf, -np.inf])), step=1))
    finish(run, wire.ChunkCount(1, None, 1))
    assert run.get("/batches/1/sequences?names=reward")["columns"]["reward"] == [None, "inf", "-inf"]


def test_the_returned_decisions_equal_those_of_the_policy(two_chunks: OwnRun) -> None:
    found = two_chunks.get("/batches/4/sequences")
    content = columns(5, **{name: np.array(values, float) for name, values in found["columns"].items()})
    assert len(found["decisions"]) == 4
    for decision in found["decisions"]:
        assert decision["accepted"] == decide(content, preset(decision["policy"])).accepted.tolist()


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

"""A run's batches over HTTP: their sequences, what was rejected and why, quarantined parts, and what-ifs over them."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun, own_run
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon.bootstrap.app import MAX_WHAT_IFS
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy, preset


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


RUN = "/api/v1/runs/math/grpo"


def test_a_damaged_report_is_shown_everywhere_and_the_run_continues(service: ThreadedService) -> None:
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


PAIR = "mismatch_or_primary"


def test_every_step_has_the_rejected_fraction_by_reason(run: OwnRun) -> None:
    run.train(steps=range(2), end=False)
    bad = columns(
        4,
        mismatch_sum_k3=np.array([9.0, 0, 0, 0]),
        mismatch_max_k3=np.array([9, 0, 0, 0], "<f4"),
        n_invalid=[0, 2, 0, 0],
    )
    send_step(run.client, run.key, step=2, content=bad)
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(2, None, 1)]))
    found = eventually(lambda: run.get("/reasons"), lambda found: len(found["steps"]) == 3)
    assert (found["steps"], found["mask_rate"]) == ([0, 1, 2], [0.0, 0.0, 0.5])
    assert found["reasons"] == {"invalid_logprobs": [0.0, 0.0, 0.25], "mean_k3": [0.0, 0.0, 0.25]}


def test_a_criterion_and_steps_are_selected(run: OwnRun) -> None:
    run.train(steps=range(6))
    found = run.get("/distribution?statistic=mean_k3&from=2&to=3")
    assert found["chosen"] == {"statistic": "mean_k3", "pair": PAIR, "where": "kl_not_exact", "n_rejected": 0}
    assert (found["steps"], found["upper"]) == ([2, 3], [0.02, 0.02])
    assert {criterion["statistic"] for criterion in found["criteria"]} == {"max_binary_kl", "max_abs_d", "mean_k3"}
    assert run.get("/distribution?points=2")["steps"] == run.get("/reasons?points=2")["steps"] == [2, 5]


def test_the_bound_of_a_step_is_the_one_active_at_the_step(run: OwnRun) -> None:
    loose = Policy.parse(
        {"name": "loose", "criteria": [{"statistic": "mean_k3", "pair": PAIR, "upper": 0.5, "where": "kl_not_exact"}]}
    )
    run.send(wire.Start(**ORIGIN), report(step=0, policy=preset("trm_auto").hash))
    assert run.ask("PUT", "/policy", {"policy": loose.spec()}).status_code == 200
    run.send(report(step=1, policy=loose.hash))
    run.send(wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(step, None, 1) for step in (0, 1)]))
    found = eventually(
        lambda: run.get("/distribution?statistic=mean_k3"), lambda found: len(found.get("steps", ())) == 2
    )
    assert found["upper"] == [0.02, 0.5]


def test_a_run_without_steps_has_neither(run: OwnRun) -> None:
    run.train(steps=(), end=False)
    assert run.get("/reasons") == {"steps": [], "mask_rate": [], "reasons": {}}
    found = run.get("/distribution")
    assert (found["chosen"], found["steps"], found["criteria"]) == (None, [], [])


WHATIF = "/api/v1/runs/math/grpo/whatif"
LOOSE = {"name": "loose", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 1e9}]}
TIGHT = {"name": "tight", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}


def ask(run: OwnRun, policy: object, **question: Any) -> dict[str, Any]:
    answer = run.ask("POST", "/whatif", {"policy": policy, **question})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_policy_is_tried_over_the_stored_steps_of_a_range_and_changes_nothing(run: OwnRun) -> None:
    run.train(steps=range(5))
    before = run.get("/policy/history")
    loose, tight = ask(run, LOOSE), ask(run, TIGHT)
    assert loose["range"] == {"first_step": 0, "last_step": 4, "n_steps": 5, "n_steps_without_reports": 0}
    assert loose["total"] == {"n_sequences": 20, "mask_rate": 0.0}
    assert tight["total"] == {"n_sequences": 20, "mask_rate": 1.0}
    assert tight["reasons"] == {"mean_k3": 20}
    assert tight["then"] == loose["then"]
    assert ask(run, LOOSE, from_step=1, to_step=3)["range"]["n_steps"] == 3
    newest = ask(run, LOOSE, max_steps=2)["range"]
    assert (newest["first_step"], newest["last_step"]) == (3, 4)
    assert ask(run, LOOSE, from_step=99) == ask(run, LOOSE, from_step=99, to_step=99)
    assert run.get("/policy/history") == before


def test_sequences_of_a_step_count_once(run: OwnRun) -> None:
    updates = [report(columns(4, seed=i), step=0, update=i) for i in range(3)]
    run.send(*updates, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(0, i, 1) for i in range(3)]))
    eventually(lambda: run.get()["state"], lambda state: state == "finished")
    assert ask(run, LOOSE)["total"]["n_sequences"] == 4


def test_pruned_steps_are_counted_as_missing(service: ThreadedService, client: httpx.Client) -> None:
    train(client, MATH)
    store = service.app.state.components.store
    store.retention.prune(now=1e12, max_age_seconds=1.0, max_bytes_per_run=1 << 40, max_bytes=1 << 40)
    found = ask(OwnRun(client, MATH), LOOSE)
    assert found["range"] == {"first_step": None, "last_step": None, "n_steps": 0, "n_steps_without_reports": 3}
    assert found["total"] == {"n_sequences": 0, "mask_rate": None}


def test_many_what_ifs_leave_threads_for_other_requests(
    service: ThreadedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service.client(limits=httpx.Limits(max_connections=None)) as client, ThreadPoolExecutor(60) as askers:
        train(client, MATH, steps=range(1))
        batches, go_on = service.app.state.components.store.batches, Event()
        gauge_keys, entered = batches.gauge_keys, list[object]()

        def waiting(*args: Any, **options: Any) -> Any:
            entered.append(args)
            go_on.wait(60)
            return gauge_keys(*args, **options)

        monkeypatch.setattr(batches, "gauge_keys", waiting)
        asked = [askers.submit(client.post, WHATIF, json={"policy": LOOSE}) for _ in range(60)]
        try:
            eventually(lambda: len(entered) >= MAX_WHAT_IFS)
            assert client.get("/api/v1/runs").status_code == 200
            assert len(entered) == MAX_WHAT_IFS
        finally:
            go_on.set()
        assert {answer.result().status_code for answer in asked} == {200}

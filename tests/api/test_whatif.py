"""What-if over HTTP: any policy over stored sequences, and the steps that they cover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually
from trmon.bootstrap.lifespan import MAX_WHAT_IFS
from trmon_client.core import wire

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

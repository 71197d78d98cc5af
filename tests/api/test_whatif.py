"""What-if over HTTP: any policy over stored sequences, and the steps that they cover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.bootstrap.lifespan import MAX_WHAT_IFS
from trmon_client.core import wire

WHATIF = "/api/v1/runs/math/grpo/whatif"
LOOSE = {"name": "loose", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 1e9}]}
TIGHT = {"name": "tight", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 0.0}]}


def ask(client: httpx.Client, policy: object, **question: Any) -> dict[str, Any]:
    answer = client.post(WHATIF, json={"policy": policy, **question})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def run(client: httpx.Client) -> httpx.Client:
    train(client, MATH, steps=range(5))
    return client


def test_a_policy_is_tried_over_every_stored_step(run: httpx.Client) -> None:
    loose, tight = ask(run, LOOSE), ask(run, TIGHT)
    assert loose["range"] == {"first_step": 0, "last_step": 4, "n_steps": 5, "n_steps_without_reports": 0}
    assert loose["total"] == {"n_sequences": 20, "mask_rate": 0.0}
    assert tight["total"] == {"n_sequences": 20, "mask_rate": 1.0}
    assert tight["reasons"] == {"mean_k3": 20}
    assert [quarter["n_sequences"] for quarter in tight["by_length"]] == [20]
    assert tight["then"] == loose["then"]


def test_token_rules_are_estimated_as_fractions_between_bounds(run: httpx.Client) -> None:
    found = ask(run, {"name": "both", "criteria": TIGHT["criteria"], "tokens": [{"rule": "token_k2", "upper": 1e-3}]})
    assert found["total"]["mask_rate"] == 1.0
    share = found["tokens"]["token_k2"]
    assert 0 <= share["at_least"] <= share["estimate"] <= share["at_most"] <= 1
    assert share["n_tokens"] > 0
    assert ask(run, LOOSE)["tokens"] == {}
    alone = ask(run, "icepop")
    assert (alone["total"]["mask_rate"], alone["tokens"].keys()) == (0.0, {"icepop"})


def test_a_soft_policy_has_weights_in_place_of_the_accepted_share(run: httpx.Client) -> None:
    assert ask(run, LOOSE)["weights"] is None
    assert ask(run, LOOSE | {"soft_tau": 1.0})["weights"] == {"mean": 1.0, "effective_share": 1.0}
    none = ask(run, TIGHT | {"soft_tau": 1.0})  # any excess over a bound of 0 is infinite
    assert (none["total"]["mask_rate"], none["weights"]) == (1.0, {"mean": 0.0, "effective_share": 0.0})
    refused = run.post(WHATIF, json={"policy": LOOSE | {"soft_tau": 0}})
    assert (refused.status_code, "soft_tau" in refused.text) == (400, True)


def test_what_if_changes_nothing(run: httpx.Client) -> None:
    before = run.get("/api/v1/runs/math/grpo/policy/history").text
    ask(run, TIGHT)
    assert run.get("/api/v1/runs/math/grpo/policy/history").text == before


def test_a_range_of_steps_can_be_selected(run: httpx.Client) -> None:
    assert ask(run, LOOSE, from_step=1, to_step=3)["range"]["n_steps"] == 3
    newest = ask(run, LOOSE, max_steps=2)["range"]
    assert (newest["first_step"], newest["last_step"]) == (3, 4)
    assert ask(run, LOOSE, from_step=99) == ask(run, LOOSE, from_step=99, to_step=99)


def test_sequences_of_a_step_count_once(client: httpx.Client) -> None:
    updates = [report(columns(4, seed=i), step=0, update=i) for i in range(3)]
    counts = [wire.ChunkCount(0, i, 1) for i in range(3)]
    send(client, MATH, *updates, wire.Finish(**ORIGIN, sequence=1, finished=counts))
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")
    assert ask(client, LOOSE)["total"]["n_sequences"] == 4


def test_pruned_steps_are_counted_as_missing(serve: Serve) -> None:
    service = serve()
    with service.client() as client:
        train(client, MATH, steps=range(3))
        store = service.app.state.components.store
        store.retention.prune(now=1e12, max_age_seconds=1.0, max_bytes_per_run=1 << 40, max_bytes=1 << 40)
        found = ask(client, LOOSE)
    assert found["range"] == {"first_step": None, "last_step": None, "n_steps": 0, "n_steps_without_reports": 3}
    assert found["total"] == {"n_sequences": 0, "mask_rate": None}


def test_missing_columns_of_reports_are_listed(run: httpx.Client) -> None:
    found = ask(run, "opsm")
    ((why, n),) = found["undecided"].items()
    assert ("advantages" in why, n) == (True, 5)
    assert found["positive_advantage"] == {"n_sequences": 0, "mask_rate": None}


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"policy": "wisdom"}, "policy"),
        ({"policy": "trm", "max_steps": 1_000_001}, "max_steps"),
        ({"policy": "trm", "from_step": -1}, "from_step"),
        ({}, "policy"),
    ],
    ids=str,
)
def test_an_invalid_question_is_refused_with_its_field(
    run: httpx.Client, question: dict[str, object], field: str
) -> None:
    answer = run.post(WHATIF, json=question)
    assert answer.status_code == 400
    assert answer.json()["field"] == field


def test_positive_and_negative_advantages_are_counted_separately(client: httpx.Client) -> None:
    content = columns(4, advantage=np.array([1.0, 1.0, -1.0, 0.0]))
    send(
        client, MATH, report(content, step=0), wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(0, None, 1)])
    )
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json(), lambda run: run["state"] == "finished")
    found = ask(client, TIGHT)
    assert (found["positive_advantage"]["n_sequences"], found["negative_advantage"]["n_sequences"]) == (2, 1)


def test_many_what_ifs_leave_threads_for_other_requests(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    service = serve()
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

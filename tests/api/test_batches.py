"""A run's batches over HTTP, with their sequences and the reasons for rejection."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.fixtures.messages import ORIGIN, columns, report
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import preset

BATCHES = "/api/v1/runs/math/grpo/batches"


def finish(client: httpx.Client, *finished: wire.ChunkCount) -> None:
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=list(finished)))
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json()["state"], lambda state: state == "finished")


@pytest.fixture
def two_chunks(client: httpx.Client) -> httpx.Client:
    """A step of two chunks; the first chunk's second sequence is far off-policy, its third has bad log-probs."""
    bad = columns(
        3, total_max_k3=np.array([0, 9, 0], "<f4"), mismatch_sum_k3=np.array([0.0, 9, 0]), n_invalid=np.array([0, 0, 2])
    )
    send(client, MATH, report(bad, step=4), report(columns(2), step=4, chunk=1))
    finish(client, wire.ChunkCount(4, None, 2))
    return client


def test_batches_are_listed_newest_first_in_pages(client: httpx.Client) -> None:
    train(client, steps=range(5))
    first = client.get(BATCHES, params={"limit": 3}).json()
    rest = client.get(BATCHES, params={"limit": 3, "after": first["next"]}).json()
    assert [batch["step"] for batch in first["items"] + rest["items"]] == [4, 3, 2, 1, 0]
    assert rest["next"] is None


def test_batches_are_listed_oldest_first_on_request(client: httpx.Client) -> None:
    train(client, steps=range(5))
    asked: dict[str, Any] = {"limit": 3, "order": "oldest"}
    first = client.get(BATCHES, params=asked).json()
    rest = client.get(BATCHES, params={**asked, "after": first["next"]}).json()
    assert [batch["step"] for batch in first["items"] + rest["items"]] == [0, 1, 2, 3, 4]
    assert rest["next"] is None
    assert client.get(BATCHES, params={"order": "random"}).status_code == 400


def test_a_batch_has_its_signals_and_scalars(client: httpx.Client) -> None:
    train(client, steps=[7])
    batch = client.get(f"{BATCHES}/7").json()
    assert (batch["step"], batch["update"], batch["n_sequences"], batch["n_tokens"]) == (7, None, 4, 64)
    assert (batch["complete"], batch["mismatches"], batch["primary_pair"]) == (True, 0, "total")
    assert batch["signals"]["mask_rate"] == 0.0
    assert batch["signals"]["response_length_growth"] is None
    assert batch["scalars"] == {"lr": 1e-3}


def test_sequences_have_the_values_that_the_policy_compared(two_chunks: httpx.Client) -> None:
    found = two_chunks.get(f"{BATCHES}/4/sequences", params={"names": "n_tokens", "first": 1, "limit": 2}).json()
    read = {criterion["statistic"]: criterion for criterion in found["criteria"]}
    assert set(read) == {"max_binary_kl", "max_abs_d", "mean_k3"}
    assert read["mean_k3"]["values"] == [9 / 16, 0.0]
    assert (read["mean_k3"]["upper"], read["mean_k3"]["lower"]) == (0.02, None)


def test_a_step_is_its_rollout_batch_or_else_its_last_update(client: httpx.Client) -> None:
    send(client, MATH, *(report(columns(seed=update), step=1, update=update) for update in (0, 1)))
    send(client, MATH, report(step=2), report(columns(seed=9), step=2, update=0))
    counts = [wire.ChunkCount(1, 0, 1), wire.ChunkCount(1, 1, 1), wire.ChunkCount(2, None, 1), wire.ChunkCount(2, 0, 1)]
    finish(client, *counts)
    assert client.get(f"{BATCHES}/1").json()["update"] == 1
    assert client.get(f"{BATCHES}/1", params={"update": 0}).json()["update"] == 0
    assert client.get(f"{BATCHES}/2").json()["update"] is None
    assert client.get(f"{BATCHES}/2", params={"update": 5}).status_code == 404


def test_every_policy_has_its_counts_by_reason(two_chunks: httpx.Client) -> None:
    active, *shadows = two_chunks.get(f"{BATCHES}/4/decisions").json()
    assert (active["policy"], active["role"], active["mask_rate"]) == ("trm_auto", "active", 0.4)
    assert active["counts"] == {"accepted": 3, "invalid_logprobs": 1, "mean_k3": 1}
    assert {shadow["policy"] for shadow in shadows} == {"trm_max", "geo_mask", "token_veto"}


def test_sequences_are_ordered_by_chunk_and_have_their_reasons(two_chunks: httpx.Client) -> None:
    found = two_chunks.get(f"{BATCHES}/4/sequences", params={"names": "n_tokens,n_invalid"}).json()
    assert found["n_sequences"] == 5
    assert found["columns"] == {"n_tokens": [16] * 5, "n_invalid": [0, 0, 2, 0, 0]}
    active = found["decisions"][0]
    assert active["accepted"] == [True, False, False, True, True]
    assert active["reasons"] == [None, "mean_k3", "invalid_logprobs", None, None]


def test_sequences_are_returned_in_windows(two_chunks: httpx.Client) -> None:
    found = two_chunks.get(f"{BATCHES}/4/sequences", params={"first": 1, "limit": 2}).json()
    assert found["first"] == 1
    assert found["columns"]["n_invalid"] == [0, 2]
    assert found["decisions"][0]["reasons"] == ["mean_k3", "invalid_logprobs"]


def test_values_that_json_lacks_are_null_or_strings(client: httpx.Client) -> None:
    odd = columns(3, reward=np.array([np.nan, np.inf, -np.inf]))
    send(client, MATH, report(odd, step=1))
    finish(client, wire.ChunkCount(1, None, 1))
    found = client.get(f"{BATCHES}/1/sequences", params={"names": "reward"}).json()
    assert found["columns"]["reward"] == [None, "inf", "-inf"]


def test_the_returned_decisions_equal_those_of_the_policy(two_chunks: httpx.Client) -> None:
    found = two_chunks.get(f"{BATCHES}/4/sequences").json()
    content = columns(5, **{name: np.array(values, float) for name, values in found["columns"].items()})
    for decision in found["decisions"]:
        assert decision["accepted"] == decide(content, preset(decision["policy"])).accepted.tolist()


def test_a_column_that_does_not_exist_is_refused(two_chunks: httpx.Client) -> None:
    refused = two_chunks.get(f"{BATCHES}/4/sequences", params={"names": "n_tokens,rewad"})
    assert refused.status_code == 400
    assert "'rewad' is not a known column; did you mean reward" in refused.json()["detail"]

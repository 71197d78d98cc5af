"""The reasons for rejection over a run's steps."""

from __future__ import annotations

import httpx
import numpy as np

from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

PATH = f"/api/v1/runs/{MATH}/reasons"


def test_every_step_has_the_rejected_fraction_by_reason(client: httpx.Client) -> None:
    train(client, steps=range(2), end=False)
    bad = columns(
        4,
        mismatch_sum_k3=np.array([9.0, 0, 0, 0]),
        mismatch_max_k3=np.array([9, 0, 0, 0], "<f4"),
        n_invalid=[0, 2, 0, 0],
    )
    send_step(client, MATH, step=2, content=bad)
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(2, None, 1)]))
    found = eventually(lambda: client.get(PATH).json(), lambda found: len(found["steps"]) == 3)
    assert (found["steps"], found["mask_rate"]) == ([0, 1, 2], [0.0, 0.0, 0.5])
    assert found["reasons"] == {"invalid_logprobs": [0.0, 0.0, 0.25], "mean_k3": [0.0, 0.0, 0.25]}


def test_many_steps_are_sampled_evenly_and_a_range_is_respected(client: httpx.Client) -> None:
    train(client, steps=range(6))
    assert client.get(PATH, params={"points": 3}).json()["steps"] == [1, 3, 5]
    assert client.get(PATH, params={"from": 2, "to": 3}).json()["steps"] == [2, 3]


def test_a_run_without_steps_has_no_rejections(client: httpx.Client) -> None:
    train(client, steps=(), end=False)
    assert client.get(PATH).json() == {"steps": [], "mask_rate": [], "reasons": {}}

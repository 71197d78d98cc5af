"""The distribution of bounded statistics over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy, preset

PAIR = "mismatch_or_primary"
PATH = f"/api/v1/runs/{MATH}/distribution"


@pytest.fixture
def trained(client: httpx.Client) -> httpx.Client:
    train(client, steps=range(6))
    return client


def test_every_step_has_a_histogram_and_its_bound(trained: httpx.Client) -> None:
    found = trained.get(PATH).json()
    assert found["steps"] == list(range(6))
    assert [sum(row) for row in found["counts"]] == [4] * 6
    assert {len(row) + 1 for row in found["counts"]} == {len(found["edges"])}
    assert found["edges"] == sorted(found["edges"])
    assert found["upper"] == [found["upper"][0]] * 6
    assert found["n_steps_without_reports"] == 0


def test_a_criterion_is_selected_by_its_statistic(trained: httpx.Client) -> None:
    found = trained.get(PATH, params={"statistic": "mean_k3", "from": 2, "to": 3}).json()
    assert found["chosen"] == {
        "statistic": "mean_k3",
        "pair": "mismatch_or_primary",
        "where": "kl_not_exact",
        "n_rejected": 0,
    }
    assert (found["steps"], found["upper"]) == ([2, 3], [0.02, 0.02])
    assert {criterion["statistic"] for criterion in found["criteria"]} == {"max_binary_kl", "max_abs_d", "mean_k3"}


def test_many_steps_are_sampled_evenly(trained: httpx.Client) -> None:
    assert trained.get(PATH, params={"points": 2}).json()["steps"] == [2, 5]


def test_the_bound_of_a_step_is_the_one_active_at_the_step(client: httpx.Client) -> None:
    loose = Policy.parse(
        {"name": "loose", "criteria": [{"statistic": "mean_k3", "pair": PAIR, "upper": 0.5, "where": "kl_not_exact"}]}
    )
    send(client, MATH, wire.Start(**ORIGIN), report(step=0, policy=preset("trm_auto").hash))
    assert client.put(f"/api/v1/runs/{MATH}/policy", json={"policy": loose.spec()}).status_code == 200
    send(client, MATH, report(step=1, policy=loose.hash))
    send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(step, None, 1) for step in (0, 1)]))
    found = eventually(
        lambda: client.get(PATH, params={"statistic": "mean_k3"}).json(), lambda found: len(found.get("steps", ())) == 2
    )
    assert found["upper"] == [0.02, 0.5]


def test_an_unknown_statistic_is_refused_with_the_known_ones(trained: httpx.Client) -> None:
    answer = trained.get(PATH, params={"statistic": "seq_ratio"})
    assert answer.status_code == 400
    assert "max_abs_d, max_binary_kl, mean_k3" in answer.text


def test_a_run_without_steps_has_no_distribution(client: httpx.Client) -> None:
    train(client, steps=(), end=False)
    found = client.get(PATH).json()
    assert (found["chosen"], found["steps"], found["criteria"]) == (None, [], [])

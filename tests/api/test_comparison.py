"""The comparison of runs over HTTP: where they part, how they differ, and with whom a single run is compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.replay import ReplayedRun, replaying
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon_client.core import wire

WELL, ILL = ReplayedRun("well", "healthy"), ReplayedRun("ill", "stale")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service with a sound run and an ill one."""
    service = ThreadedService(tmp_path_factory.mktemp("comparison") / "data")
    try:
        with service.client() as client, replaying(client, WELL, ILL):
            yield client
    finally:
        service.stop()


def compare(client: httpx.Client, runs: str, **params: Any) -> Any:
    response = client.get("/api/v1/compare", params={"runs": runs, **params})
    assert response.status_code == 200, response.text
    return response.json()


def test_two_runs_part_where_the_ill_one_becomes_stale(client: httpx.Client) -> None:
    found = compare(client, "math/well,math/ill")
    assert (found["by"], found["proposed"]) == ("step", False)
    well, ill = found["runs"]
    assert (well["partings"], well["sentence"]) == ([], "")
    assert ill["sentence"].startswith("They ")
    assert ill["fleet"]["verdict"]["kind"] == "watch"
    assert ill["step"] == list(range(40))
    assert len(ill["signals"]["reward_mean"]) == len(ill["elapsed_seconds"]) == 40
    assert found["config"] == [{"name": "recording", "values": ["healthy", "stale"], "given": [True, True]}]


def test_a_single_run_is_compared_with_its_healthy_sibling(client: httpx.Client) -> None:
    found = compare(client, "math/ill", by="time")
    assert found["proposed"]
    assert [one["fleet"]["run"] for one in found["runs"]] == ["ill", "well"]
    assert found["by"] == "time"


def test_a_run_without_a_sound_sibling_gets_a_clear_error(client: httpx.Client) -> None:
    response = client.get("/api/v1/compare", params={"runs": "math/well"})
    assert response.status_code == 404
    assert "no sound run to compare with 'of math beside well; name one: runs=A,B'" in response.json()["detail"]


@pytest.mark.parametrize(
    ("runs", "status", "words"),
    [
        ("", 400, "name two to eight runs"),
        ("math/well,math/well", 400, "has 'math/well' twice"),
        ("well,math/ill", 400, "must be PROJECT/RUN"),
        (",".join(f"math/r{i}" for i in range(9)), 400, "has 9 runs; at most 8"),
        ("math/well,math/none", 404, "math/none"),
    ],
)
def test_what_cannot_be_compared_is_refused(client: httpx.Client, runs: str, status: int, words: str) -> None:
    response = client.get("/api/v1/compare", params={"runs": runs})
    assert response.status_code == status, response.text
    assert words in response.text


def test_long_runs_are_read_in_few_points(client: httpx.Client) -> None:
    found = compare(client, "math/well,math/ill", points=7)
    assert {len(one["step"]) for one in found["runs"]} == {7}
    assert found["runs"][1]["sentence"] == "They have too few steps in common to tell where they part."


def test_the_signal_that_leaves_first_is_named_with_its_step(client: httpx.Client) -> None:
    losses = {"steady": lambda _: 1.0, "diverging": lambda step: 1.0 + max(step - 39, 0)}
    norms = {"steady": lambda _: 0.5, "diverging": lambda step: 0.5 if step < 45 else 5.0}
    for name in losses:
        key = RunKey("math", name)
        send(client, key, wire.Start(**ORIGIN))
        for step in range(70):
            noise = 0.01 * math.sin(12.9898 * step)
            values: dict[str, wire.JsonNumber] = {
                "loss": losses[name](step) + noise,
                "grad_norm": norms[name](step) + noise,
            }
            send(client, key, wire.Scalars(**ORIGIN, sequence=step, step=step, values=values))
        send(client, key, wire.Finish(**ORIGIN, sequence=70))
    found = eventually(
        lambda: compare(client, "math/steady,math/diverging"),
        lambda found: all(len(one["step"]) == 70 for one in found["runs"]),
    )
    first, then = found["runs"][1]["partings"]
    assert first["signal"] == "loss"
    assert 39 <= first["place"] <= 42
    assert then["signal"] == "grad_norm"
    assert 43 <= then["place"] <= 47
    assert found["runs"][1]["sentence"].startswith(f"They part at step {first['place']:.0f}: loss first, then gradient")

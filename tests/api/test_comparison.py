"""The comparison of runs over HTTP: where they part, how they differ, and with whom a single run is compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.replay import ReplayedRun, replaying

WELL, ILL = ReplayedRun("well", "healthy"), ReplayedRun("ill", "stale")


@pytest.fixture(scope="module")
def client(shared: httpx.Client) -> Iterator[httpx.Client]:
    """A client of a service with a sound run and an ill one."""
    with replaying(shared, WELL, ILL):
        yield shared


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
    ("runs", "words"),
    [
        ("", "name two to eight runs"),
        ("math/well,math/well", "has 'math/well' twice"),
        (",".join(f"math/r{i}" for i in range(9)), "has 9 runs; at most 8"),
    ],
)
def test_what_cannot_be_compared_is_refused(client: httpx.Client, runs: str, words: str) -> None:
    response = client.get("/api/v1/compare", params={"runs": runs})
    assert (response.status_code, words in response.text) == (400, True), response.text


def test_long_runs_are_read_in_few_points(client: httpx.Client) -> None:
    found = compare(client, "math/well,math/ill", points=7)
    assert {len(one["step"]) for one in found["runs"]} == {7}
    assert found["runs"][1]["sentence"] == "They have too few steps in common to tell where they part."

"""What a process shows of runs that it does not watch, or does not watch any more."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually


@pytest.fixture
def trained(client: httpx.Client) -> httpx.Client:
    """A client of a service that has watched a run to its end."""
    train(client, steps=range(4))
    return client


def lines(client: httpx.Client) -> set[str]:
    """Return what /metrics says of the run."""
    return {line for line in client.get("/metrics").text.splitlines() if 'run="grpo"' in line}


def test_a_run_that_has_ended_is_shown_after_a_restart_as_before(
    trained: httpx.Client, service: ThreadedService
) -> None:
    before = eventually(lambda: lines(trained), lambda found: any(line.startswith("trmon_step{") for line in found))
    advice = trained.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/advice").json()
    service.restart()
    with service.client() as client:
        assert lines(client) == before
        assert client.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/advice").json() == advice

"""What a process shows of runs that it does not watch, or does not watch any more."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import httpx
import pytest

from tests.fixtures.messages import report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.model.errors import NotReady
from trmon.hosts.fleet import view_sync
from trmon.hosts.fleet.view_sync import ViewSync
from trmon.store.repositories.run_snapshots import StoredRunView
from trmon.views.run_view_cache import RunViewCache


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


class Asked:
    """Outlooks of no runs, which remember what they were asked for; they can be away."""

    def __init__(self) -> None:
        self.questions: list[set[int]] = []
        self.is_away = False

    def active(self, *, since: float) -> list[int]:
        """See Outlooks."""
        return []

    def existing(self, run_ids: Collection[int]) -> set[int]:
        """See Outlooks."""
        return set()

    def of(self, run_ids: Collection[int]) -> list[StoredRunView]:
        """See Outlooks."""
        if self.is_away:
            raise NotReady("away")
        self.questions.append(set(run_ids))
        return []


def test_runs_that_are_noted_are_read_once_and_together() -> None:
    asked = Asked()
    mirror = ViewSync(asked, RunViewCache(), idle_after_seconds=60.0)
    mirror.note([1, 2])
    mirror.note([2, 3])
    mirror.look()
    mirror.look()
    assert asked.questions == [{1, 2, 3}]


def test_runs_that_cannot_be_read_stay_noted() -> None:
    asked = Asked()
    mirror = ViewSync(asked, RunViewCache(), idle_after_seconds=60.0)
    mirror.note([1])
    asked.is_away = True
    with pytest.raises(NotReady):
        mirror.look()
    asked.is_away = False
    mirror.note([2])
    mirror.look()
    assert asked.questions == [{1, 2}]


@pytest.mark.server("postgres")
def test_a_deleted_run_is_shown_no_more(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_sync, "SWEEP_SECONDS", 0.0)
    service = ThreadedService(tmp_path, database_url=postgres_url)
    with service.client() as client:
        send(client, MATH, report())
    service.restart()
    with service.client() as client:
        assert lines(client)
        client.delete(f"/api/v1/runs/{MATH}").raise_for_status()
        eventually(lambda: lines(client), lambda found: not found)
    service.stop()

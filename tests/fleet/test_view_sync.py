"""Views of runs that another process, or an earlier one, has evaluated."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import httpx
import pytest

from tests.fixtures.messages import report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.errors import NotReady
from trmon.fleet import views as view_sync_module
from trmon.fleet.views import RunViewCache, ViewSync
from trmon.store.repositories.run_snapshots import StoredRunView


@pytest.fixture
def trained(client: httpx.Client) -> httpx.Client:
    """A client of a service with a finished run."""
    train(client, steps=range(4))
    return client


def lines(client: httpx.Client) -> set[str]:
    """Return the run's lines in /metrics."""
    return {line for line in client.get("/metrics").text.splitlines() if 'run="grpo"' in line}


def test_a_finished_run_has_the_same_view_after_a_restart(trained: httpx.Client, service: ThreadedService) -> None:
    before = eventually(lambda: lines(trained), lambda found: any(line.startswith("trmon_step{") for line in found))
    advice = trained.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/advice").json()
    service.restart()
    with service.client() as client:
        assert lines(client) == before
        assert client.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/advice").json() == advice


class RecordingSource:
    """A source of snapshots without runs that records its queries and can be unavailable."""

    def __init__(self) -> None:
        self.queries: list[set[int]] = []
        self.is_unavailable = False

    def active(self, *, since: float) -> list[int]:
        """See SnapshotSource."""
        return []

    def existing(self, run_ids: Collection[int]) -> set[int]:
        """See SnapshotSource."""
        return set()

    def of(self, run_ids: Collection[int]) -> list[StoredRunView]:
        """See SnapshotSource."""
        if self.is_unavailable:
            raise NotReady("unavailable")
        self.queries.append(set(run_ids))
        return []


def test_changed_runs_are_read_once_and_together() -> None:
    source = RecordingSource()
    view_sync = ViewSync(source, RunViewCache(), idle_after_seconds=60.0)
    view_sync.mark_changed([1, 2])
    view_sync.mark_changed([2, 3])
    view_sync.poll()
    view_sync.poll()
    assert source.queries == [{1, 2, 3}]


def test_runs_that_cannot_be_read_stay_marked_as_changed() -> None:
    source = RecordingSource()
    view_sync = ViewSync(source, RunViewCache(), idle_after_seconds=60.0)
    view_sync.mark_changed([1])
    source.is_unavailable = True
    with pytest.raises(NotReady):
        view_sync.poll()
    source.is_unavailable = False
    view_sync.mark_changed([2])
    view_sync.poll()
    assert source.queries == [{1, 2}]


@pytest.mark.server("postgres")
def test_a_deleted_run_leaves_the_metrics(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_sync_module, "DELETION_CHECK_SECONDS", 0.0)
    service = ThreadedService(tmp_path, database_url=postgres_url)
    with service.client() as client:
        send(client, MATH, report())
    service.restart()
    with service.client() as client:
        assert lines(client)
        client.delete(f"/api/v1/runs/{MATH}").raise_for_status()
        eventually(lambda: lines(client), lambda found: not found)
    service.stop()

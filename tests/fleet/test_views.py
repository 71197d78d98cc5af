"""The newest views of runs: which are active, what they derive from their row, and those of other processes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import httpx
import pytest

from tests.fixtures.messages import report
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.views import view_of
from tests.fixtures.waiting import eventually
from tests.store.builders import batch
from trmon.domain.errors import NotReady
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.publish import RunView
from trmon.fleet import views as view_sync_module
from trmon.fleet.views import PolicyThreshold, RunViewCache, ViewSync, thresholds_of
from trmon_client.core.policies.policy import Policy, preset


def test_active_runs_are_listed_newest_first_and_idle_ones_removed() -> None:
    view_cache = RunViewCache(idle_after_seconds=60.0)
    for run_id, last_report_at in ((1, 110.0), (2, 150.0), (3, None)):
        view_cache.put(view_of(run_id, last_report_at=last_report_at))
    assert [shown.run.id for shown in view_cache.active(now=160.0)] == [2, 1, 3]
    assert [shown.run.id for shown in view_cache.active(now=165.0)] == [2, 1]
    assert view_cache.get(3) is None


def test_mask_rates_are_by_policy_and_bounds_by_kind() -> None:
    signals = {"mask_rate": 0.1, "mask_rate:geo_mask": 0.2, "mask_rate_long": 0.9, "bound_trpo": 3.0}
    shown = view_of(row=batch(BatchKey(1, 0, None), run_id=1, ordinal=1, signals=signals, scalars={"lr": 0.5}))
    assert shown.mask_rates == {"trm_auto": 0.1, "geo_mask": 0.2}
    assert shown.bounds == {"trpo": 3.0}
    assert shown.scalars == {"lr": 0.5}


def test_of_several_bounds_on_one_statistic_the_tightest_is_listed() -> None:
    criteria = [{"statistic": "geo_ratio", "lower": 0.9, "upper": 1.2}, {"statistic": "geo_ratio", "upper": 1.1}]
    policy = Policy.parse({"name": "twice", "criteria": criteria})
    assert [(one.bound, one.value) for one in thresholds_of(policy)] == [("lower", 0.9), ("upper", 1.1)]
    assert next(thresholds_of(preset("geo_mask"))) == PolicyThreshold(
        statistic="geo_ratio", pair="mismatch_or_primary", where="", bound="lower", value=0.99
    )


@pytest.fixture
def trained(client: httpx.Client) -> httpx.Client:
    """A client of a service with a finished run."""
    train(client, steps=range(4))
    return client


def lines(client: httpx.Client) -> set[str]:
    return {line for line in client.get("/metrics").text.splitlines() if 'run="grpo"' in line}


def test_a_finished_run_has_the_same_view_after_a_restart(trained: httpx.Client, service: ThreadedService) -> None:
    before = eventually(lambda: lines(trained), lambda found: any(line.startswith("trmon_step{") for line in found))
    budget = trained.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/budget").json()
    assert budget["advice"] is not None
    service.restart()
    with service.client() as client:
        assert lines(client) == before
        assert client.get(f"/api/v1/runs/{MATH.project}/{MATH.run}/budget").json() == budget


class RecordingSource:
    """A source of snapshots without runs that records its queries and can be unavailable."""

    def __init__(self) -> None:
        self.queries: list[set[int]] = []
        self.is_unavailable = False

    def active(self, *, since: float) -> list[int]:
        return []

    def existing(self, run_ids: Collection[int]) -> set[int]:
        return set()

    def of(self, run_ids: Collection[int], *, now: float) -> list[RunView]:
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

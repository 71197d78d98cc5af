"""A run that continues after its attempts have moved to a lake is judged also while the lake cannot be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.domain.trainer import finished, report
from tests.fixtures.databases import open_migrated_store
from tests.store.lake.lakes import delete_moved, move_to_lake
from tests.worker.watched_run import ORIGIN, RecordingObserver, receive, run_passes, scheduler_over
from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.findings.verdict import words_of
from trmon.domain.runs.run import RunState
from trmon.fleet.verdicts import judged_run
from trmon.fleet.views import RunViewCache
from trmon.store import Store
from trmon_client.core import wire

HOUR = 3600.0


@dataclass(frozen=True)
class Resumed:
    """The database of a run that moved to a lake and was resumed."""

    url: str
    lake: Path
    run_id: int


def judge(store: Store, run_id: int, *, at: float) -> tuple[RunViewCache, RecordingObserver]:
    """Run passes over a run by a new worker until no message is unread."""
    views, observer = RunViewCache(idle_after_seconds=1e12), RecordingObserver()
    run_passes(scheduler_over(store.run_log, observer, views=views), run_id, at=at)
    assert not observer.failures
    return views, observer


def send(store: Store, steps: range, *, attempt: str, at: float, health: str = "healthy") -> int:
    origin = {"attempt": attempt, "launch": f"launch-{attempt}"}
    sent = [
        report(step, health=health, finished=finished((step - 1, None, 1)) if step not in (0, 30) else [], **origin)
        for step in steps
    ]
    return receive(store, *sent, at=at)


@pytest.fixture
def resumed(tmp_path: Path) -> Resumed:
    """A run of 30 steps in the lake, whose second attempt falls ill from step 45 on."""
    with closing(open_migrated_store(tmp_path / "trmon.sqlite")) as store:
        send(store, range(30), attempt="a", at=100.0)
        end = wire.Finish(**ORIGIN | {"launch": "launch-a"}, sequence=1, finished=finished((29, None, 1)))
        run_id = receive(store, end, at=101.0)
        judge(store, run_id, at=102.0)
        assert store.runs.by_id(run_id).state is RunState.FINISHED
        move_to_lake(store, str(tmp_path / "lake"), now=HOUR)
        delete_moved(store)
        assert rows_of_database(store, run_id) == []
        send(store, range(30, 45), attempt="b", at=HOUR + 10.0)
        send(store, range(45, 60), attempt="b", at=HOUR + 20.0, health="corrupt")
    return Resumed(f"sqlite:///{tmp_path / 'trmon.sqlite'}", tmp_path / "lake", run_id)


def rows_of_database(store: Store, run_id: int) -> list[int]:
    """Return the steps of a run's rows in the database."""
    return [row.key.step for row in store.run_log.batches_after(run_id, 0, limit=10_000, with_moved=False)]


def remove(resumed: Resumed) -> None:
    shutil.rmtree(resumed.lake)


def corrupt(resumed: Resumed) -> None:
    for file in resumed.lake.rglob("*.parquet"):
        file.write_bytes(b"PAR1" + bytes(100) + b"PAR1")


@pytest.mark.parametrize(
    ("break_lake", "lake_url"),
    [
        pytest.param(remove, None, id="its folder was removed"),
        pytest.param(corrupt, None, id="its files are damaged"),
        pytest.param(lambda _: None, "", id="none is configured any more"),
        pytest.param(lambda _: None, "s3://lake/trmon", id="the object store is away"),
    ],
)
def test_without_its_lake_a_resumed_run_is_judged_and_says_so(
    resumed: Resumed,
    break_lake: Callable[[Resumed], None],
    lake_url: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_lake(resumed)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    given = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    lake_url = str(resumed.lake) if lake_url is None else lake_url or None
    with closing(Store.open(resumed.url, lake_url=lake_url)) as store:
        views, observer = judge(store, resumed.run_id, at=HOUR + 30.0)
        assert rows_of_database(store, resumed.run_id) == list(range(30, 59))
        view = views.get(resumed.run_id)
        assert view is not None
        assert view.judgement is not None
        assert view.judgement.findings[0].finding == "corrupt_logprobs"
        assert "history unavailable" in words_of(view.judgement)
        verdict = judged_run(view.run, [], None, view, health_rules=(), now=HOUR + 30.0).verdict
        assert verdict.why.endswith("; history unavailable (the lake cannot be read)")
        assert sum(tally.quarantined[QuarantinePart.HISTORY] for tally in observer.passes) == 1
        [stored] = store.run_snapshots.of([resumed.run_id], now=HOUR + 30.0)
        assert stored.judgement == view.judgement


def test_the_verdict_says_so_beside_no_finding_and_no_longer_once_the_lake_is_back(resumed: Resumed) -> None:
    away = resumed.lake.rename(resumed.lake.with_name("away"))
    with closing(Store.open(resumed.url, lake_url=str(resumed.lake))) as store:
        run_id = send(store, range(60, 61), attempt="b", at=HOUR + 25.0)
        views, _ = judge(store, run_id, at=HOUR + 30.0)
    away.rename(resumed.lake)
    with closing(Store.open(resumed.url, lake_url=str(resumed.lake))) as store:
        send(store, range(61, 62), attempt="b", at=HOUR + 35.0)
        later, _ = judge(store, run_id, at=HOUR + 40.0)
    before, after = ((view := found.get(run_id)) and view.judgement for found in (views, later))
    assert before is not None
    assert after is not None
    assert "history unavailable (the lake cannot be read)" in before.notes
    assert not any("history" in note for note in after.notes)
    assert "history unavailable" not in words_of(after)

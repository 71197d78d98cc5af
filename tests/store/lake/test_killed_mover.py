"""Tests that no row is lost or doubled when the mover is killed, at every point of its work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.fixtures.databases import prepare_database
from tests.fixtures.s3 import s3_lake
from tests.store.builders import NOW
from tests.store.lake.lake_checksums import Rows, checksums, lake_rows, merged, stored_rows
from tests.store.lake.lake_runs import put_ended_run
from tests.store.lake.mover_child import move_all
from trmon.store import Store
from trmon.store.lake.mover import LakeMover
from trmon.store.schema import tables

FORKS = multiprocessing.get_context("forkserver")
# Imported before a mover is forked, which takes seconds.
FORKS.set_forkserver_preload([move_all.__module__, LakeMover.__module__])
CHILD_SECONDS = 120
N_BATCHES = 256
"""A chunk of signals."""
DELETIONS_AT_ONCE = 5


CASES = [
    pytest.param("sqlite", "folder", id="sqlite-folder"),
    pytest.param("postgresql", "s3", id="postgresql-s3", marks=pytest.mark.server("postgres")),
]
"""Each database and each kind of lake once: a case takes minutes."""


@pytest.fixture
def lake_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty lake in a folder or in an object store."""
    if request.param == "folder":
        yield str(tmp_path / "lake")
        return
    with s3_lake(monkeypatch) as url:
        yield url


def move_until_killed(url: str, lake_url: str, kill_at: int) -> tuple[int, list[str]]:
    """Run a mover that dies at a point, 0 for never, and return its exit status and the points that it passed."""
    receiving, passed = FORKS.Pipe(duplex=False)
    given = {"now": NOW + 100, "kill_at": kill_at, "passed": passed, "environment": dict(os.environ)}
    child = FORKS.Process(target=move_all, args=(url, lake_url), kwargs=given)
    child.start()
    passed.close()
    points: list[str] = []
    with receiving, suppress(EOFError):
        while receiving.poll(CHILD_SECONDS):
            points.append(receiving.recv())
    child.join(CHILD_SECONDS)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode, points


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("url", "lake_url"), CASES, indirect=True)
def test_a_mover_that_is_killed_at_every_point_loses_and_doubles_nothing(url: str, lake_url: str) -> None:
    if url.startswith("sqlite:"):
        prepare_database(url)
    expected: list[Rows] = []
    killed_at: list[str] = []
    kill_at = 1
    while True:
        with closing(Store.open(url)) as store:
            run_id = put_ended_run(store, f"run-{len(killed_at)}", n_batches=N_BATCHES)
            expected.append(stored_rows(store, run_id))
        status, points = move_until_killed(url, lake_url, kill_at)
        if status == 0:
            break
        killed_at.append(points[-1])
        # Each transaction that deletes is like the one before.
        kill_at += DELETIONS_AT_ONCE if points[-1] == "deleting" else 1
        with closing(Store.open(url)) as store:
            store.lake(lake_url).run_pass(now=NOW + 100, after_seconds=50.0)
        assert checksums(lake_rows(lake_url)) == checksums(merged(expected)), f"killed at {points[-1]!r}"
    assert len(killed_at) >= 20
    assert {"planned", "reports written", "reports committed", "verified", "finished", "deleting"} <= {*killed_at}
    assert checksums(lake_rows(lake_url)) == checksums(merged(expected))
    with closing(Store.open(url)) as store:
        assert store.moved_rows.delete() == 0
        with store._reader.connect() as connection:
            for table in (tables.report, tables.batch, tables.decision, tables.signal_chunk, tables.notice):
                assert connection.scalar(select(func.count()).select_from(table)) == 0, table.name

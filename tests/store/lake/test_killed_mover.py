"""Tests that no row is lost or doubled when the mover is killed."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.builders import NOW, count
from tests.store.children import move_until_killed, run_child
from tests.store.lake.lakes import Rows, checksums, lake_rows, merged, put_ended_run, stored_rows
from trmon.store import Store
from trmon.store.schema import tables

N_BATCHES = 256
"""A chunk of signals."""
POINTS = (
    "planned",
    "reports written",
    "reports committed",
    "signal_chunks committed",
    "verified",
    "finished",
)
"""One point of each kind: before, in and between the commits of tables, and before, after and in the end."""


CASES = [
    pytest.param("sqlite", "folder", id="sqlite-folder"),
    pytest.param("postgresql", "s3", id="postgresql-s3", marks=pytest.mark.server("postgres")),
]
"""Each database and each kind of lake once: a move takes seconds."""


@pytest.fixture
def lake_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty lake in a folder or in an object store."""
    return str(tmp_path / "lake") if request.param == "folder" else request.getfixturevalue("bucket_url")


@pytest.mark.parametrize(("url", "lake_url"), CASES, indirect=True)
def test_a_mover_that_is_killed_loses_and_doubles_nothing(migrated_url: str, lake_url: str) -> None:
    """Each mover continues what the one before left behind, and the last one deletes."""
    expected: list[Rows] = []
    for points, n_batches in ((POINTS, N_BATCHES), (("deleting",), 0), (("",), 0)):
        with closing(Store.open(migrated_url)) as store:
            run_id = put_ended_run(store, f"run-{len(expected)}", n_batches=n_batches)
            expected.append(stored_rows(store, run_id))
        for kill_at in points:
            given = {"now": NOW + 100, "kill_at": kill_at, "environment": dict(os.environ)}
            assert run_child(move_until_killed, migrated_url, lake_url, **given) == (
                -signal.SIGKILL if kill_at else 0
            ), kill_at
    assert checksums(lake_rows(lake_url)) == checksums(merged(expected))
    with closing(Store.open(migrated_url)) as store:
        for table in (tables.report, tables.batch, tables.decision, tables.signal_chunk, tables.notice):
            assert count(store, table) == 0, table.name

"""The mover: every table of the lake gets the rows of ended attempts once, however it fails, is killed or repeated."""

from __future__ import annotations

import math
import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from sqlalchemy import delete, update

from tests.store.builders import NOW, count, execute
from tests.store.children import move_until_killed, run_child
from tests.store.conftest import ON_SQLITE
from tests.store.lake.lakes import Rows, checksums, lake_rows, merged, put_ended_run, rows_of_table, stored_rows
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotReady
from trmon.store import Store
from trmon.store.lake.delta_schema import LAKE_REPORTS, LAKE_SEQUENCES, LAKE_TABLES
from trmon.store.lake.delta_tables import DeltaTables, OpenTable, table_folder_of
from trmon.store.lake.files import compact_partitions
from trmon.store.lake.location import LakeLocation, lake_location_of
from trmon.store.lake.mover import LakeMover
from trmon.store.schema import tables


def test_every_table_gets_the_rows_of_ended_attempts_once(store: Store, tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_ended_run(store, name)
    mover = store.lake(str(tmp_path / "lake"))
    assert mover.move_next(now=NOW + 49, after_seconds=50.0) is None, "no run was idle for long enough"
    assert not (tmp_path / "lake").exists()
    moved = mover.move_next(now=NOW + 100, after_seconds=50.0)
    assert moved is not None
    assert (moved.id, len(moved.members), moved.n_reports) == (1, 2, 6)
    assert mover.move_next(now=NOW + 200, after_seconds=50.0) is None
    assert {table.name: len(rows_of_table(tmp_path / "lake", table.name)) for table in LAKE_TABLES} == {
        "reports": 6,
        "sequences": 48,
        "notices": 2,
        "batches": 6,
        "decisions": 6,
        "signal_chunks": 0,
        "chunk_axes": 0,
        "alerts": 2,
        "alert_events": 2,
        "policies": 0,
        "adaptations": 0,
        "notes": 0,
        "attempts": 2,
    }
    [row, *_] = rows_of_table(tmp_path / "lake", "batches")
    assert (row["project"], row["month"], row["run"], row["attempt"]) == ("math", "2027-01", "one", "a")
    assert dict(row["signals"]) == {"total_kl_k3": 0.001}
    assert math.isnan(dict(row["scalars"])["loss"])


@ON_SQLITE
def test_a_table_of_an_older_trmon_gets_the_columns_of_this_one(store: Store, tmp_path: Path) -> None:
    fields = tuple(field for field in LAKE_SEQUENCES.fields if field.name != "total_sum_k3")
    older = replace(LAKE_SEQUENCES, fields=fields)
    DeltaTables(LakeLocation(str(tmp_path / "lake"))).find_or_create(older)
    put_ended_run(store, "one")
    assert store.lake(str(tmp_path / "lake")).move_next(now=NOW + 100, after_seconds=50.0) is not None
    rows = rows_of_table(tmp_path / "lake", "sequences")
    assert len(rows) == 24
    assert all(isinstance(row["total_sum_k3"], float) for row in rows)


LATER = NOW + 100
DAY = 86_400.0


def test_two_movers_at_once_move_every_row_once(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    run_ids = [put_ended_run(store, f"run-{i}") for i in range(2)]
    expected = [stored_rows(store, run_id) for run_id in run_ids]
    barrier, failures = Barrier(2), list[NotReady]()

    def move(lake: LakeMover) -> None:
        barrier.wait()
        try:
            lake.run_pass(now=LATER, after_seconds=50.0)
        except NotReady as error:
            failures.append(error)

    movers = [Thread(target=move, args=(store.lake(url),)) for _ in range(2)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    # One of them may lose the race for a commit; its next pass finds the work done.
    store.lake(url).run_pass(now=LATER, after_seconds=50.0)
    assert all("failed" in str(failure) for failure in failures)
    assert checksums(lake_rows(url)) == checksums(merged(expected))


@ON_SQLITE
def test_an_object_store_gets_the_rows_and_loses_deleted_runs(store: Store, bucket_url: str) -> None:
    kept = stored_rows(store, put_ended_run(store, "one"))
    gone = put_ended_run(store, "two")
    lake = store.lake(bucket_url)
    assert [len(batch.members) for batch in lake.run_pass(now=LATER, after_seconds=50.0).batches] == [2]
    store.runs.delete(store.runs.by_id(gone).key, access=EVERYTHING, now=LATER)
    assert lake.run_pass(now=LATER, after_seconds=50.0).deleted_runs == 1
    assert checksums(lake_rows(bucket_url)) == checksums(kept)


@ON_SQLITE
def test_small_files_of_past_months_are_merged_in_order(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    lake, expected = store.lake(url), []
    for name in ("one", "two", "three"):
        expected.append(stored_rows(store, put_ended_run(store, name)))
        assert lake.run_pass(now=LATER, after_seconds=50.0).merged_files == 0
    assert lake.run_pass(now=LATER + 40 * DAY, after_seconds=50.0).merged_files == 3 * 8
    assert checksums(lake_rows(url)) == checksums(merged(expected))
    assert lake.run_pass(now=LATER + 80 * DAY, after_seconds=50.0).merged_files == 0


@ON_SQLITE
def test_of_two_rewrites_of_one_version_the_later_fails(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    expected = []
    for name in ("one", "two"):
        expected.append(stored_rows(store, put_ended_run(store, name)))
        store.lake(url).run_pass(now=LATER, after_seconds=50.0)
    folder = table_folder_of(lake_location_of(url), LAKE_REPORTS)
    first, second = (OpenTable(LAKE_REPORTS, DeltaTable(f"{url}/reports"), folder) for _ in range(2))
    assert compact_partitions(first, before_month="2999-01") == 2
    with pytest.raises(CommitFailedError):
        compact_partitions(second, before_month="2999-01")
    assert checksums(lake_rows(url)) == checksums(merged(expected))


@ON_SQLITE
def test_a_lake_that_is_away_delays_and_loses_nothing(store: Store, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    expected = stored_rows(store, put_ended_run(store, "one"))
    lake = store.lake(str(blocked))
    with pytest.raises(NotReady, match=r"the lake .*blocked failed: "):
        lake.run_pass(now=LATER, after_seconds=50.0)
    assert store.lake_batches.status(now=LATER, after_seconds=50.0).moved_attempts == 0
    kept = store.retention.prune(now=LATER, max_age_seconds=1.0, max_bytes_per_run=0, max_bytes=0, keeps_for_lake=True)
    assert kept.reports == 0
    blocked.unlink()
    assert len(lake.run_pass(now=LATER, after_seconds=50.0).batches) == 1
    assert checksums(lake_rows(str(blocked))) == checksums(expected)


def test_a_restored_database_moves_nothing_until_the_lake_is_rolled_back(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    lake = store.lake(url)
    one = stored_rows(store, put_ended_run(store, "one"))
    lake.run_pass(now=LATER, after_seconds=50.0)
    two = stored_rows(store, put_ended_run(store, "two"))
    lake.move_next(now=LATER, after_seconds=50.0)
    _restore_to_batch_1(store)
    with pytest.raises(NotReady, match="the lake has batch 2 and the database knows 1"):
        lake.run_pass(now=LATER, after_seconds=50.0)
    assert lake.roll_back(now=LATER) == 1
    assert checksums(lake_rows(url)) == checksums(one)
    assert lake.roll_back(now=LATER) == 0
    [again] = lake.run_pass(now=LATER, after_seconds=50.0).batches
    assert again.id == 3
    assert checksums(lake_rows(url)) == checksums(merged([one, two]))


def _restore_to_batch_1(store: Store) -> None:
    attempt = tables.attempt
    execute(store, update(attempt).where(attempt.c.lake_batch_id == 2).values(lake_batch_id=None))
    for column in (tables.lake_batch_attempt.c.lake_batch_id, tables.lake_batch.c.id):
        execute(store, delete(column.table).where(column == 2))


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

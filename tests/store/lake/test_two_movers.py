"""Tests that two movers at once move every row once, and that a lake that is away delays and loses nothing."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from sqlalchemy import delete, update

from tests.store.builders import NOW
from tests.store.lake.lake_checksums import checksums, lake_rows, merged, stored_rows
from tests.store.lake.lake_runs import put_ended_run
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotReady
from trmon.store import Store
from trmon.store.lake.delta_schema import LAKE_REPORTS
from trmon.store.lake.delta_tables import table_folder_of
from trmon.store.lake.files import compact_partitions
from trmon.store.lake.location import lake_location_of
from trmon.store.lake.mover import Lake
from trmon.store.schema import tables
from trmon.store.writing.transaction import Transaction

LATER = NOW + 100
DAY = 86_400.0


def test_two_movers_at_once_move_every_row_once(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    expected = []
    for turn in range(3):
        run_ids = [put_ended_run(store, f"run-{turn}-{i}") for i in range(2)]
        expected += [stored_rows(store, run_id) for run_id in run_ids]
        barrier, failures = Barrier(2), []

        def move(lake: Lake, barrier: Barrier = barrier, failures: list[NotReady] = failures) -> None:
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


def test_an_object_store_gets_the_rows_and_loses_deleted_runs(store: Store, bucket_url: str) -> None:
    kept = stored_rows(store, put_ended_run(store, "one"))
    gone = put_ended_run(store, "two")
    lake = store.lake(bucket_url)
    assert [batch.attempts for batch in lake.run_pass(now=LATER, after_seconds=50.0).batches] == [2]
    store.runs.delete(store.runs.by_id(gone).key, access=EVERYTHING, now=LATER)
    assert lake.run_pass(now=LATER, after_seconds=50.0).deleted_runs == 1
    assert checksums(lake_rows(bucket_url)) == checksums(kept)


def test_small_files_of_past_months_are_merged_in_order(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    lake, expected = store.lake(url), []
    for name in ("one", "two", "three"):
        expected.append(stored_rows(store, put_ended_run(store, name)))
        assert lake.run_pass(now=LATER, after_seconds=50.0).merged_files == 0
    assert lake.run_pass(now=LATER + 40 * DAY, after_seconds=50.0).merged_files == 3 * 8
    assert checksums(lake_rows(url)) == checksums(merged(expected))
    assert lake.run_pass(now=LATER + 80 * DAY, after_seconds=50.0).merged_files == 0


def test_of_two_rewrites_of_one_version_the_later_fails(store: Store, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    expected = []
    for name in ("one", "two"):
        expected.append(stored_rows(store, put_ended_run(store, name)))
        store.lake(url).run_pass(now=LATER, after_seconds=50.0)
    folder = table_folder_of(lake_location_of(url), LAKE_REPORTS)
    first, second = (DeltaTable(f"{url}/reports") for _ in range(2))
    assert compact_partitions(first, LAKE_REPORTS, folder, before_month="2999-01") == 2
    with pytest.raises(CommitFailedError):
        compact_partitions(second, LAKE_REPORTS, folder, before_month="2999-01")
    assert checksums(lake_rows(url)) == checksums(merged(expected))


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
    lake.mover.move_next(now=LATER, after_seconds=50.0)
    store.writer.submit(_restore_to_batch_1).result()
    with pytest.raises(NotReady, match="the lake has batch 2 and the database knows 1"):
        lake.run_pass(now=LATER, after_seconds=50.0)
    assert lake.mover.roll_back(now=LATER) == 1
    assert checksums(lake_rows(url)) == checksums(one)
    assert lake.mover.roll_back(now=LATER) == 0
    [again] = lake.run_pass(now=LATER, after_seconds=50.0).batches
    assert again.id == 3
    assert checksums(lake_rows(url)) == checksums(merged([one, two]))


def _restore_to_batch_1(transaction: Transaction) -> None:
    attempt = tables.attempt
    transaction.connection.execute(update(attempt).where(attempt.c.lake_batch_id == 2).values(lake_batch_id=None))
    for table, column in ((tables.lake_batch_attempt, "lake_batch_id"), (tables.lake_batch, "id")):
        transaction.connection.execute(delete(table).where(table.c[column] == 2))

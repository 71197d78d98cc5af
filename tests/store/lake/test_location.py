"""The files of a lake: where they are, which row groups are read, and what happens while they cannot be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from tests.fixtures.waiting import eventually
from trmon.domain.errors import LakeUnavailable, NotReady, Overloaded
from trmon.store.lake.delta_schema import LAKE_REPORTS
from trmon.store.lake.delta_tables import TableFolder, table_folder_of
from trmon.store.lake.location import (
    FIRST_PAUSE_SECONDS,
    MAX_READS,
    REQUEST_SECONDS,
    LakeAccess,
    brief_error,
    lake_location_of,
)
from trmon.store.lake.row_groups import BoundedCache, ColumnFilter, RowGroups


def folder_of(url: str) -> TableFolder:
    return table_folder_of(lake_location_of(url), LAKE_REPORTS)


def options_of(folder: TableFolder) -> dict[str, Any]:
    """Return what a file system is made from, as pyarrow pickles it."""
    [options] = folder.filesystem.__reduce__()[1]
    return dict(options)


def test_a_folder_is_local(tmp_path: Path) -> None:
    folder = folder_of(str(tmp_path))
    assert folder.is_local
    assert folder.file("a/b.parquet") == f"{tmp_path}/reports/a/b.parquet"


def test_s3_gives_up_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    folder = folder_of("s3://bucket/prefix")
    assert not folder.is_local
    assert folder.path == "bucket/prefix/reports"
    options = options_of(folder)
    assert (options["region"], options["request_timeout"]) == ("eu-north-1", REQUEST_SECONDS)


def test_a_store_that_answers_as_s3_does_is_asked_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    options = options_of(folder_of("s3://bucket/prefix"))
    assert (options["scheme"], options["endpoint_override"]) == ("http", "minio.example:9000")


def test_google_gives_up_after_seconds() -> None:
    folder = folder_of("gs://bucket/prefix")
    assert folder.path == "bucket/prefix/reports"
    assert options_of(folder)["retry_time_limit"].total_seconds() == REQUEST_SECONDS


@pytest.mark.parametrize(
    ("url", "account"),
    [("abfss://box@trmon.dfs.core.windows.net/azure", "trmon"), ("abfss://box/azure", "other")],
)
def test_azure_has_its_account_and_key(monkeypatch: pytest.MonkeyPatch, url: str, account: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    folder = folder_of(url)
    assert folder.path == "box/azure/reports"
    options = options_of(folder)
    assert (options["account_name"], options["account_key"]) == (account, "a2V5")


@pytest.mark.parametrize("scheme", ["s3a", "az", "abfs", "ftp"])
def test_other_schemes_are_refused_with_the_known_ones(scheme: str) -> None:
    with pytest.raises(NotReady, match=f"starts with {scheme}://; give a folder or one of s3://, gs://, abfss://"):
        lake_location_of(f"{scheme}://bucket/prefix")


def test_credentials_in_the_url_are_refused() -> None:
    with pytest.raises(NotReady, match="put them into the environment"):
        lake_location_of("s3://key:secret@bucket/prefix")


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(access: LakeAccess) -> str:
    """Return what is said of a read that fails."""
    with pytest.raises(LakeUnavailable) as failure, access.read():
        raise OSError("Connection refused")
    return str(failure.value)


def test_a_failed_read_says_what_to_check() -> None:
    assert fail(LakeAccess("s3://b/p", monotonic=Clock())) == (
        "the run is in the lake s3://b/p, which cannot be read (Connection refused); check TRMON_LAKE_URL, its "
        "credentials and its network; runs in the database are not affected"
    )


def test_after_a_failure_reads_are_refused_for_a_while_that_doubles() -> None:
    clock = Clock()
    access = LakeAccess("s3://b/p", monotonic=clock)
    for pause_seconds in (FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS):
        fail(access)
        clock.now += pause_seconds - 0.1
        with pytest.raises(LakeUnavailable, match="Connection refused"), access.read():
            pytest.fail("the lake was asked again")
        clock.now += 0.2


def test_a_read_that_succeeds_ends_the_pauses() -> None:
    clock = Clock()
    access = LakeAccess("s3://b/p", monotonic=clock)
    fail(access)
    clock.now += FIRST_PAUSE_SECONDS
    with access.read():
        pass
    fail(access)
    clock.now += FIRST_PAUSE_SECONDS
    with access.read():
        pass


def test_an_error_that_is_not_of_the_lake_passes_and_refuses_nothing() -> None:
    access = LakeAccess("s3://b/p", monotonic=Clock())
    with pytest.raises(ZeroDivisionError), access.read():
        raise ZeroDivisionError
    with access.read():
        pass


def test_a_slow_lake_holds_few_threads() -> None:
    access, go_on = LakeAccess("s3://b/p"), Event()

    def read(_: int) -> bool:
        try:
            with access.read():
                return go_on.wait(30)
        except Overloaded:
            return False

    n_threads = MAX_READS + 5
    with ThreadPoolExecutor(n_threads) as pool:
        reads = [pool.submit(read, i) for i in range(n_threads)]
        eventually(lambda: sum(future.done() for future in reads), lambda n_refused: n_refused == 5)
        go_on.set()
        assert sum(future.result(30) for future in reads) == MAX_READS


def test_the_tree_that_deltalake_draws_is_one_line() -> None:
    assert brief_error(OSError("Generic S3 error\n   \x1b[31m↳\x1b[0m refused")) == "Generic S3 error refused"
    assert len(brief_error(OSError("x" * 1000))) == 203


ROWS = pa.table({"attempt": [1] * 6 + [2] * 6, "step": [*range(6), *range(6)], "name": [*"aabbccddeeff"]})


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with three rows per row group."""
    path = str(tmp_path / "rows.parquet")
    pq.write_table(ROWS, path, row_group_size=3)
    return path


def read(groups: RowGroups, file: str, *filters: ColumnFilter) -> list[tuple[int, int]]:
    parts = groups.read(LocalFileSystem(), file, key=file, columns=["attempt", "step", "name"], filters=filters)
    return [(row["attempt"], row["step"]) for part in parts for row in part.to_pylist()]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        pytest.param([], [(1, step) for step in range(6)] + [(2, step) for step in range(6)], id="all"),
        pytest.param([ColumnFilter.equal("attempt", 2), ColumnFilter.equal("step", 4)], [(2, 4)], id="a value"),
        pytest.param([ColumnFilter.any_of("name", {"a", "f"})], [(1, 0), (1, 1), (2, 4), (2, 5)], id="some values"),
        pytest.param([ColumnFilter("step", 5, 9)], [(1, 5), (2, 5)], id="a range includes its ends"),
        pytest.param([ColumnFilter.equal("attempt", 3)], [], id="nothing"),
    ],
)
def test_matching_rows_are_returned(file: str, filters: list[ColumnFilter], expected: list[tuple[int, int]]) -> None:
    groups = RowGroups()
    assert read(groups, file, *filters) == expected
    assert read(groups, file, *filters) == expected, "from memory"


def test_a_row_group_without_rows_that_match_is_not_read(file: str) -> None:
    parts = RowGroups().read(
        LocalFileSystem(), file, key=file, columns=["attempt", "step"], filters=[ColumnFilter.equal("attempt", 1)]
    )
    assert sum(1 for _ in parts) == 2


def test_a_bound_that_is_not_known_rules_nothing_out() -> None:
    assert ColumnFilter.equal("step", 1).may_match(None, None)
    assert not ColumnFilter.any_of("step", {1, 9}).may_match(2, 8)


def test_a_cache_forgets_what_was_not_used_for_longest() -> None:
    cache: BoundedCache[str] = BoundedCache(3, size_of=len)
    made: list[str] = []

    def get(value: str) -> None:
        cache.get(value, lambda: made.append(value) or value)

    for value in ("a", "bb", "a", "cc", "a", "bb"):
        get(value)
    assert made == ["a", "bb", "cc", "bb"]

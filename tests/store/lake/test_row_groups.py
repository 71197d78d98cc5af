"""Tests that reads of the lake touch only the row groups with rows that match, and return just these rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from trmon.store.lake.row_groups import BoundedCache, ColumnFilter, RowGroups

ROWS = pa.table({"attempt": [1] * 6 + [2] * 6, "step": [*range(6), *range(6)], "name": [*"aabbccddeeff"]})


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with three rows per row group."""
    path = str(tmp_path / "rows.parquet")
    pq.write_table(ROWS, path, row_group_size=3)
    return path


def read(groups: RowGroups, file: str, *filters: ColumnFilter) -> list[tuple[int, int]]:
    """Return the attempt and step of the rows that match."""
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
def test_the_rows_that_match_are_returned(
    file: str, filters: list[ColumnFilter], expected: list[tuple[int, int]]
) -> None:
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

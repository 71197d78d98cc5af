"""A session runs one SELECT over the tables that it is given, and reaches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from trmon.domain.model.errors import InvalidInput, TrmonError
from trmon.store.query.query_session import TableRows, open_session


def run(sql: str, *, memory: str = "1GB") -> list[dict[str, object]]:
    """Return the rows of a query over tables without rows."""
    with open_session(memory=memory) as session:
        named = session.named_tables(sql)
        rows = {table.name: TableRows(table.lake.schema.empty_table()) for table in named}
        found: list[dict[str, object]] = session.run(sql, rows).read_all().to_pylist()
        return found


REFUSED = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM delta_scan('{file}')",
    "SELECT * FROM sqlite_scan('{file}', 'token')",
    "SELECT getenv('HOME')",
    "SELECT * FROM store",
    "SELECT * FROM queries",
]
STATEMENTS = [
    "COPY (SELECT 1) TO '{file}.csv'",
    "EXPORT DATABASE '{file}'",
    "ATTACH '{file}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "CREATE TABLE copied AS SELECT 1",
    "DELETE FROM runs",
    "SELECT 1; SELECT 2",
    "",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_a_query_reads_no_file_no_network_and_no_variable(tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    with pytest.raises(TrmonError):
        run(sql.format(file=file))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_only_one_select_is_run(tmp_path: Path, sql: str) -> None:
    with pytest.raises(InvalidInput, match="one SELECT"):
        run(sql.format(file=tmp_path / "file"))
    assert not (tmp_path / "file.csv").exists()


WRONG = [
    ("SELECT 1 FROM nowhere", "the tables are runs, attempts, batches, sequences"),
    ("SELEC 1", "the tables are runs, attempts"),
    ("SELECT nope FROM batches", "batches has project, month, database_id"),
    ("SELECT CAST('a' AS INT)", "Could not convert"),
]


@pytest.mark.parametrize(("sql", "said"), WRONG)
def test_an_error_says_what_there_is(sql: str, said: str) -> None:
    with pytest.raises(TrmonError, match=said):
        run(sql)


def test_more_than_the_memory_is_refused() -> None:
    with pytest.raises(TrmonError, match="Out of Memory"):
        run("SELECT list(range) FROM range(10000000)", memory="20MB")
    with pytest.raises(InvalidInput, match="--memory: 'lots' is not a size"):
        run("SELECT 1", memory="lots")


def test_what_exceeds_the_memory_goes_to_files_that_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [row] = run("SELECT count(*) AS n FROM (SELECT range FROM range(8000000) ORDER BY hash(range))", memory="60MB")
    assert row["n"] == 8_000_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1", ()),
        ('WITH mine AS (SELECT 1 FROM Batches) SELECT * FROM mine, "notes"', ("batches", "notes")),
        ("SELECT run FROM runs", ("attempts",)),
    ],
)
def test_the_named_tables_are_found(sql: str, names: tuple[str, ...]) -> None:
    with open_session(memory="1GB") as session:
        assert tuple(table.name for table in session.named_tables(sql)) == names

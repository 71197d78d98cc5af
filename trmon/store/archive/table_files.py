"""The files of one table and run: written row group by row group, read piece by piece, never whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from trmon.domain.model.errors import InvalidInput
from trmon.store.archive.manifest import TABLE, Manifest

T = TypeVar("T")

GROUP_ROWS = 65_536
GROUP_BYTES = 32 << 20
PART_GROUPS = 128
"""A file ends after so many row groups, since their index is kept in memory."""
PIECE_ROWS = 256
PIECE_REPORTS = 16
"""Reports in memory at a time: a payload may have megabytes."""


class TableWriter:
    """Writes one table of a run; without a row, there is no file."""

    def __init__(self, root: Path, table: str, *, run: str, schema: Any) -> None:
        self.n_rows = 0
        self._folder = table_folder(root, table, run=run)
        self._schema = schema
        self._waiting: list[Any] = []
        self._writer: Any = None
        self._n_parts = 0
        self._n_groups = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        self._end_part()

    def write(self, batch: Any) -> None:
        """Add the rows of a record batch."""
        self._waiting.append(batch)
        self.n_rows += batch.num_rows
        rows, n_bytes = (sum(getattr(part, what) for part in self._waiting) for what in ("num_rows", "nbytes"))
        if rows >= GROUP_ROWS or n_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = self._new_part()
        table = pa.Table.from_batches(self._waiting, schema=self._schema).combine_chunks()
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting.clear()
        self._n_groups += 1
        if self._n_groups == PART_GROUPS:
            self._end_part()

    def _new_part(self) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"part-{self._n_parts}.parquet"
        self._n_parts += 1
        self._n_groups = 0
        floats = [field.name for field in self._schema if pa.types.is_floating(field.type)]
        repeated = [field.name for field in self._schema if _repeats(field.type)]
        return pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=repeated,
            use_byte_stream_split=floats,
            write_page_checksum=True,
        )

    def _end_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def read_table(
    root: Path, table: str, *, run: str, n_rows: int = PIECE_ROWS, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yield the rows of a table and run as record batches, checksums compared.

    Args: n_rows: how many at most a batch has; columns: all, without.
    Errors: InvalidInput naming the file.
    """
    for file in _files(root, table, run=run):
        with _opened(file) as parts:
            yield from parts.iter_batches(n_rows, columns=columns)


def check_row_counts(root: Path, manifest: Manifest) -> None:
    """Compare how many rows the files of all runs have with what an archive says; sequences are only for people.

    Errors: InvalidInput naming the folder of a table of which files are missing, or the file that is damaged.
    """
    for table, n_rows in manifest.rows.items():
        found = sum(_n_rows(file) for run in manifest.runs for file in _files(root, table, run=run))
        if table != "sequences" and found != n_rows:
            raise InvalidInput(
                "DIR",
                f"{root / f'{TABLE}{table}'} has {found} rows of {n_rows}: files are missing; copy all of it again",
            )


def read_decoded_rows(
    root: Path, table: str, *, run: str, decode: Callable[[Any], list[T]], n_rows: int = PIECE_ROWS
) -> Iterator[list[T]]:
    """Yield the rows of a table and run, decoded from record batches. Errors: InvalidInput for other columns."""
    for batch in read_table(root, table, run=run, n_rows=n_rows):
        try:
            piece = decode(batch)
        except (KeyError, pa.ArrowException) as error:
            raise InvalidInput("DIR", f"{table} of {run} are not as trmon writes them: {error}") from error
        yield piece


def table_folder(root: Path, table: str, *, run: str) -> Path:
    """Return where the files of a table and run lie."""
    return root / f"{TABLE}{table}" / f"run={run}"


def _files(root: Path, table: str, *, run: str) -> list[Path]:
    folder = table_folder(root, table, run=run)
    return sorted(folder.glob("part-*.parquet"), key=lambda file: int(file.stem.removeprefix("part-")))


def _n_rows(file: Path) -> int:
    with _opened(file) as parts:
        return int(parts.metadata.num_rows)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as parts:
            yield parts
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput("DIR", f"{file} cannot be read: {error}") from error


def _repeats(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))

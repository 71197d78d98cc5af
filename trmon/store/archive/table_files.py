"""Read and write the parquet files of one table and run in pieces, so that no table is in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from trmon.domain.errors import InvalidInput
from trmon.store.archive.manifest import FOLDER_MODE, TABLE, Manifest, private_file

T = TypeVar("T")

GROUP_ROWS = 65_536
GROUP_BYTES = 32 << 20
PART_GROUPS = 128
"""Maximum row groups per file: the writer keeps their index in memory."""
MAX_RATIO = 256
"""Maximum size of a file's rows over that of the file: payloads are compressed already, columns reach 30."""
FREE_BYTES = 256 << 20
"""Up to this size its rows may have any ratio."""
PIECE_ROWS = 256
PIECE_REPORTS = 16
"""Maximum reports in memory: a payload can be several megabytes."""


class TableWriter:
    """Writes one table of a run; a table without rows has no file."""

    def __init__(self, root: Path, table: str, *, run: str, schema: Any) -> None:
        self.n_rows = 0
        self._folder = table_folder(root, table, run=run)
        self._schema = schema
        self._buffered: list[Any] = []
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
        self._close_part()

    def write(self, batch: Any) -> None:
        """Add the rows of a record batch."""
        self._buffered.append(batch)
        self.n_rows += batch.num_rows
        rows, n_bytes = (sum(getattr(part, size) for part in self._buffered) for size in ("num_rows", "nbytes"))
        if rows >= GROUP_ROWS or n_bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._buffered:
            return
        if self._writer is None:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            file = private_file(self._folder / f"part-{self._n_parts}.parquet")
            self._n_parts += 1
            self._n_groups = 0
            floats = [field.name for field in self._schema if pa.types.is_floating(field.type)]
            repeating = [field.name for field in self._schema if has_repeats(field.type)]
            self._writer = pq.ParquetWriter(
                file,
                self._schema,
                compression="zstd",
                use_dictionary=repeating,
                use_byte_stream_split=floats,
                write_page_checksum=True,
            )
        table = pa.Table.from_batches(self._buffered, schema=self._schema).combine_chunks()
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._buffered.clear()
        self._n_groups += 1
        if self._n_groups == PART_GROUPS:
            self._close_part()

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def read_table(
    root: Path, table: str, *, run: str, n_rows: int = PIECE_ROWS, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yield the rows of a table and run as record batches, and verify their checksums.

    Args: n_rows: maximum rows per record batch; columns: None for all.
    Errors: InvalidInput naming the file.
    """
    for file in _files(root, table, run=run):
        most_bytes, n_bytes = max(FREE_BYTES, MAX_RATIO * file.stat().st_size), 0
        with _open(file) as parquet:
            for piece in parquet.iter_batches(n_rows, columns=columns):
                n_bytes += piece.nbytes
                if n_bytes > most_bytes:
                    said = f"expands to over {most_bytes >> 20} MiB, over {MAX_RATIO} times its size"
                    raise InvalidInput("DIR", f"{file} {said}; `trmon export` writes no such file")
                yield piece


def check_row_counts(root: Path, manifest: Manifest) -> None:
    """Compare the row counts of the files with the manifest, also of the sequences, which are there for queries only.

    Errors: InvalidInput naming the folder with missing files, or the damaged file.
    """
    for table, n_rows in manifest.rows.items():
        found = sum(_n_rows(file) for run in manifest.runs for file in _files(root, table, run=run))
        if found != n_rows:
            raise InvalidInput(
                "DIR",
                f"{root / f'{TABLE}{table}'} has {found} of {n_rows} rows: files are missing; copy the archive again",
            )


def read_decoded_rows(
    root: Path, table: str, *, run: str, decode: Callable[[Any], list[T]], n_rows: int = PIECE_ROWS
) -> Iterator[list[T]]:
    """Yield the decoded rows of a table and run in pieces. Errors: InvalidInput if the columns differ."""
    for record_batch in read_table(root, table, run=run, n_rows=n_rows):
        try:
            piece = decode(record_batch)
        except (KeyError, pa.ArrowException) as error:
            raise InvalidInput("DIR", f"the table {table} of {run} has unexpected columns: {error}") from error
        yield piece


def table_folder(root: Path, table: str, *, run: str) -> Path:
    """Return the folder of the files of a table and run."""
    return root / f"{TABLE}{table}" / f"run={run}"


def _files(root: Path, table: str, *, run: str) -> list[Path]:
    folder = table_folder(root, table, run=run)
    return sorted(folder.glob("part-*.parquet"), key=lambda file: int(file.stem.removeprefix("part-")))


def _n_rows(file: Path) -> int:
    with _open(file) as parquet:
        return int(parquet.metadata.num_rows)


@contextmanager
def _open(file: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput("DIR", f"cannot read {file}: {error}") from error


def has_repeats(kind: Any) -> bool:
    """Whether columns of a type usually repeat values, so that a dictionary shrinks them."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))

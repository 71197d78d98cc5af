"""Opens the Delta tables of a lake and their folders, and creates those that do not exist yet.

deltalake's own file system for pyarrow holds the interpreter's lock while it waits for the object
store: a slow lake would stop every request of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError, TableNotFoundError

from trmon.domain.errors import NotReady
from trmon.store.lake.delta_schema import PARTITIONS, LakeTable
from trmon.store.lake.location import CONNECT_SECONDS, MAX_ATTEMPTS, REQUEST_SECONDS, LakeLocation, brief_error
from trmon.store.lake.row_groups import ColumnFilter, Filters


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table; the credentials are those of the environment."""

    filesystem: Any
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the files are in a folder of this machine."""
        return isinstance(self.filesystem, pyarrow.fs.LocalFileSystem)

    def file(self, name: str) -> str:
        """Return the path of a file that the log names."""
        return f"{self.path}/{name}"

    def dataset(self, names: Iterable[str]) -> Any:
        """Return the rows of files that the log names, without their partitions."""
        return pyarrow.dataset.dataset(
            [self.file(name) for name in names], filesystem=self.filesystem, format="parquet"
        )


def table_folder_of(location: LakeLocation, table: LakeTable) -> TableFolder:
    """Return the folder of a table. Errors: ArrowException, OSError for credentials that lack something."""
    if not location.is_remote:
        return TableFolder(pyarrow.fs.LocalFileSystem(), location.table_uri(table.name))
    url = urlsplit(location.table_uri(table.name))
    filesystem: Any
    # The variables are those that deltalake reads, which pyarrow does not all know.
    match url.scheme:
        case "s3":
            endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
            filesystem = pyarrow.fs.S3FileSystem(
                region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
                scheme=endpoint.scheme or "https",
                endpoint_override=endpoint.netloc or None,
                connect_timeout=CONNECT_SECONDS,
                request_timeout=REQUEST_SECONDS,
                retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=MAX_ATTEMPTS),
            )
        case "gs":
            filesystem = pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=REQUEST_SECONDS))
        case _:
            host = (url.hostname or "").partition(".")[0] if url.username else ""
            account = host or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
            key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
            filesystem = pyarrow.fs.AzureFileSystem(account, account_key=key)
    return TableFolder(filesystem, f"{url.username or url.netloc}{url.path}")


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table of a lake, its log as it was last read, and the folder of its files."""

    table: LakeTable
    delta: DeltaTable
    folder: TableFolder


class DeltaTables:
    """The tables of one lake, kept open. A mover has its own: a writer relies on the version that it has checked."""

    def __init__(self, location: LakeLocation) -> None:
        self.location = location
        self._opened: dict[str, OpenTable] = {}
        self._lock = Lock()

    def find(self, table: LakeTable) -> OpenTable | None:
        """Return a table as it is now; None if it does not exist. Errors: NotReady if the lake cannot be read."""
        with self._lock, lake_errors(self.location):
            opened = self._opened.get(table.name)
            if opened is not None:
                opened.delta.update_incremental()
                return opened
            try:
                delta = DeltaTable(self.location.table_uri(table.name), storage_options=self.location.storage_options)
            except TableNotFoundError:
                return None
            opened = self._opened[table.name] = OpenTable(table, delta, table_folder_of(self.location, table))
            return opened

    def dataset(self, table: LakeTable) -> Any:
        """Return a table as a pyarrow dataset, which reads only what is asked of it; None if the table does not exist.

        Errors: NotReady.
        """
        found = self.find(table)
        if found is None:
            return None
        with lake_errors(self.location):
            files = pyarrow.fs.SubTreeFileSystem(found.folder.path, found.folder.filesystem)
            return found.delta.to_pyarrow_dataset(filesystem=files)

    def find_or_create(self, table: LakeTable) -> OpenTable:
        """Return a table as it is now, with every column of this version; two processes may create it at once.

        Errors: NotReady.
        """
        if (found := self.find(table)) is not None:
            with lake_errors(self.location):
                # Readers see null in the rows that an older trmon wrote, and it can still append.
                known = {field.name for field in found.delta.schema().fields}
                missing = [Field.from_arrow(field) for field in table.schema if field.name not in known]
                if missing:
                    found.delta.alter.add_columns(missing)
                    found.delta.update_incremental()
            return found
        with lake_errors(self.location):
            if not self.location.is_remote:
                Path(self.location.url).mkdir(mode=0o700, parents=True, exist_ok=True)
            DeltaTable.create(
                self.location.table_uri(table.name),
                table.schema,
                mode="ignore",
                partition_by=list(PARTITIONS),
                name=table.name,
                configuration={"delta.dataSkippingStatsColumns": ",".join(table.pruning_columns)},
                storage_options=self.location.storage_options,
            )
        created = self.find(table)
        if created is None:
            raise NotReady(f"the table {table.name} was removed from {self.location.url} as it was created")
        return created


@contextmanager
def lake_errors(location: LakeLocation) -> Iterator[None]:
    """Raise NotReady, with the cause in brief, for an error of the lake."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise NotReady(f"the lake {location.url} failed: {brief_error(error)}") from error


LogEntry = dict[str, Any]
"""A file: its `path` in the table's folder, `size_bytes`, `num_records`, `partition.*`, and `min.*` and `max.*`."""


def log_entries(delta_table: DeltaTable) -> list[LogEntry]:
    """Return all files of a table."""
    entries: list[LogEntry] = pa.table(delta_table.get_add_actions(flatten=True)).to_pylist()
    return entries


def matching(entries: Iterable[LogEntry], filters: Filters) -> Iterator[LogEntry]:
    """Yield the files that can have a row that matches, whose values are between the file's minimum and maximum."""
    bounds = [(one, f"min.{one.column}", f"max.{one.column}") for one in filters]
    for entry in entries:
        if all(one.may_match(entry.get(least), entry.get(most)) for one, least, most in bounds):
            yield entry


def files_with(delta_table: DeltaTable, column: str, value: int) -> list[LogEntry]:
    """Return the files that can have a row with this value."""
    return list(matching(log_entries(delta_table), [ColumnFilter.equal(column, value)]))

"""Where the files of a lake's tables are, as pyarrow opens them.

deltalake has a file system for pyarrow of its own, which holds the interpreter's lock while it waits for the object
store: a slow lake would stop every request of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pyarrow.dataset
import pyarrow.fs

from trmon.store.lake.lake_location import CONNECT_SECONDS, MAX_ATTEMPTS, REQUEST_SECONDS, LakeLocation
from trmon.store.lake.lake_tables import LakeTable


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

    @property
    def as_filesystem(self) -> Any:
        """The files by the names that the log has."""
        return pyarrow.fs.SubTreeFileSystem(self.path, self.filesystem)


def table_folder_of(location: LakeLocation, table: LakeTable) -> TableFolder:
    """Return the folder of a table. Errors: ArrowException, OSError for credentials that lack something."""
    if not location.is_remote:
        return TableFolder(pyarrow.fs.LocalFileSystem(), location.table_uri(table.name))
    url = urlsplit(location.table_uri(table.name))
    bucket = url.username or url.netloc
    return TableFolder(_object_store(location), f"{bucket}{url.path}")


def _object_store(location: LakeLocation) -> Any:
    """Return the store of a lake; the variables are those that deltalake reads, which pyarrow does not all know."""
    url = urlsplit(location.url)
    match url.scheme:
        case "s3":
            return _s3()
        case "gs":
            return pyarrow.fs.GcsFileSystem(retry_time_limit=timedelta(seconds=REQUEST_SECONDS))
        case _:
            return _azure(url)


def _s3() -> Any:
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    return pyarrow.fs.S3FileSystem(
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        scheme=endpoint.scheme or "https",
        endpoint_override=endpoint.netloc or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=MAX_ATTEMPTS),
    )


def _azure(url: SplitResult) -> Any:
    host = (url.hostname or "").partition(".")[0] if url.username else ""
    account = host or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    return pyarrow.fs.AzureFileSystem(account, account_key=os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"))

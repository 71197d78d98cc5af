"""The files of a lake are opened where its URL says, with the variables that Delta reads too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trmon.domain.errors import NotReady
from trmon.store.lake.delta_schema import LAKE_REPORTS
from trmon.store.lake.delta_tables import TableFolder, table_folder_of
from trmon.store.lake.location import REQUEST_SECONDS, lake_location_of


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

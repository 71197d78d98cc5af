"""Where a lake is: a folder or a bucket, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trmon.domain.model.errors import NotReady

SCHEMES = ("s3", "gs", "abfss")
"""The object stores; credentials come from the environment and never from the URL."""

CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 20.0
MAX_ATTEMPTS = 3
RETRY_SECONDS = 15.0
"""How long an object store may take. By default it is tried for minutes, while a reader waits; a mover tries again."""


@dataclass(frozen=True, slots=True)
class LakeLocation:
    """The address of a lake, without credentials."""

    url: str

    def table_uri(self, table: str) -> str:
        """Return the address of a table."""
        return f"{self.url}/{table}"

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return "://" in self.url

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options with which deltalake opens tables here; the environment has the others."""
        if not self.is_remote:
            return None
        return {
            "connect_timeout": f"{CONNECT_SECONDS:g}s",
            "timeout": f"{REQUEST_SECONDS:g}s",
            "max_retries": str(MAX_ATTEMPTS - 1),
            "retry_timeout": f"{RETRY_SECONDS:g}s",
        }


def lake_location_of(url: str) -> LakeLocation:
    """Return the location of a setting. Errors: NotReady for a scheme that trmon cannot write to, or credentials."""
    parts = urlsplit(url)
    if "://" not in url or parts.scheme == "file":
        folder = Path(parts.path if parts.scheme == "file" else url).expanduser().resolve()
        return LakeLocation(str(folder))
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise NotReady(f"TRMON_LAKE_URL starts with {parts.scheme}://; give a folder or one of {known}")
    if not parts.netloc:
        raise NotReady(f"TRMON_LAKE_URL names no bucket; write {parts.scheme}://bucket/prefix")
    if parts.password is not None or (parts.username is not None and parts.scheme != "abfss"):
        raise NotReady("TRMON_LAKE_URL has credentials; put them into the environment: AWS_*, GOOGLE_* or AZURE_*")
    return LakeLocation(url.rstrip("/"))

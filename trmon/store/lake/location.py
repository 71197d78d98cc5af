"""Where a lake is, and the limits within which a service reads it.

A lake that is slow or unreachable gets few reads at once, and none soon after a failed one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from urllib.parse import urlsplit

from trmon.domain.errors import LakeUnavailable, NotReady, Overloaded

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


MAX_READS = 16
"""Reads at once; each occupies a thread of those that answer requests."""
FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 60.0
MESSAGE_LENGTH = 200

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class LakeAccess:
    """Lets reads of the lake through; may be used from any thread.

    After a failed read, all others are refused for a while, which doubles with each further failure: without, each
    request for a run in an unreachable lake would hold a thread until its timeout.
    """

    def __init__(self, url: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._monotonic = monotonic
        self._slots = BoundedSemaphore(MAX_READS)
        self._lock = Lock()
        self._failures = 0
        self._refused_until = 0.0
        self._reason = ""

    @contextmanager
    def read(self) -> Iterator[None]:
        """Run the block as a read. Errors: LakeUnavailable for an unreachable lake; Overloaded."""
        from deltalake.exceptions import DeltaError

        self._check_reachable()
        if not self._slots.acquire(blocking=False):
            raise Overloaded("too many requests read runs from the lake; retry", retry_after_seconds=1.0)
        try:
            yield
        except (DeltaError, OSError) as error:
            with self._lock:
                pause_seconds = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 16), MAX_PAUSE_SECONDS)
                self._failures += 1
                self._refused_until = self._monotonic() + pause_seconds
                self._reason = brief_error(error)
            raise self._unreachable() from error
        finally:
            self._slots.release()
        self._failures = 0

    def _check_reachable(self) -> None:
        if self._monotonic() < self._refused_until:
            raise self._unreachable()

    def _unreachable(self) -> LakeUnavailable:
        return LakeUnavailable(
            f"the run is in the lake {self._url}, which cannot be read ({self._reason}); check TRMON_LAKE_URL, its "
            "credentials and its network; runs in the database are not affected"
        )


def brief_error(error: BaseException) -> str:
    """Return an error of deltalake, which draws a tree in colours, as one short line."""
    text = " ".join(_ANSI.sub("", str(error)).replace("↳", "").split())
    return text if len(text) <= MESSAGE_LENGTH else f"{text[:MESSAGE_LENGTH]}..."

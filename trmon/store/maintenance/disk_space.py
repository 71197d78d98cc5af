"""Checks whether a folder's disk takes a write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trmon.domain.model.errors import NotReady

PROBE_BYTES = 1 << 18
"""More than a small commit needs, little enough to reserve at every probe."""


def check_disk_space(folder: Path) -> None:
    """Reserve some space in a file without a name and free it again; nothing is written. Errors: NotReady."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        raise NotReady(
            f"cannot write to {folder}: {error.strerror}; free some space on its disk, or make it writable"
        ) from error

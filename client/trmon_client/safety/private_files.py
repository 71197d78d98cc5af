"""Files that only their owner may read, whatever the umask says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path, mode: str, *, buffering: int = -1) -> IO[bytes]:
    """Open a binary file; if it is created, only its owner may read it. Errors: OSError."""
    return open(path, mode, buffering, opener=_open)


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner may enter; parents take the umask, and one that exists stays as it is."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags, FILE_MODE)

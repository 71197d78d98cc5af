"""Files of an archive, which only their owner may read: they hold configurations, notes and texts of runs."""

from __future__ import annotations

from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def private_file(path: Path) -> Path:
    """Create a file that only its owner may read, and return its path. Errors: OSError."""
    path.touch(mode=FILE_MODE)
    return path

"""A log that comes from standard input."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

STANDARD_INPUT = "-"


@contextmanager
def log_file(path: Path, *, standard_input: BinaryIO) -> Iterator[Path]:
    """Return the file at a path; for "-", a temporary copy of standard input, since formats are read twice."""
    if str(path) != STANDARD_INPUT:
        yield path
        return
    with TemporaryDirectory(prefix="trmon-log-") as folder:
        copied = Path(folder, "standard-input")
        with copied.open("wb") as file:
            shutil.copyfileobj(standard_input, file)
        yield copied

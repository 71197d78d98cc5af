"""The recorded run that `trmon diagnose --example` reports on: a run of the lab whose learning rate is too large."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

EXAMPLE_FILE = Path(__file__).with_name("example_run.jsonl.xz")


@contextmanager
def example_log() -> Iterator[Path]:
    """Unpack the log of the recorded run for as long as the context lasts."""
    with TemporaryDirectory(prefix="trmon-example-") as folder:
        file = Path(folder, "example.jsonl")
        file.write_bytes(lzma.decompress(EXAMPLE_FILE.read_bytes()))
        yield file

"""All formats of logs that can be read, and which of them a file has."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import zstandard

from trmon.domain.errors import InvalidInput
from trmon.logs.console import CONSOLE, MARKDOWN
from trmon.logs.csv_table import CSV
from trmon.logs.html_tables import HTML
from trmon.logs.json_logs import JSON, JSON_LINES, TRAINER_STATE
from trmon.logs.log_format import LogFormat, LogItem, LogSample
from trmon.logs.mlflow_folder import MLFLOW_FOLDER
from trmon.logs.mlflow_store import MLFLOW, store_of
from trmon.logs.notebook import NOTEBOOK
from trmon.logs.tensorboard import TENSORBOARD
from trmon.logs.trackio import TRACKIO
from trmon.logs.wandb import WANDB

LOG_FORMATS: tuple[LogFormat, ...] = (
    NOTEBOOK,
    TRAINER_STATE,
    MLFLOW_FOLDER,
    TENSORBOARD,
    WANDB,
    TRACKIO,
    MLFLOW,
    JSON_LINES,
    JSON,
    HTML,
    CSV,
    MARKDOWN,
    CONSOLE,
)
"""Of several formats that match, the first is taken; the console output comes last, since any text may contain it."""
HEAD_BYTES = 1 << 16
COMPRESSED: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path: zstandard.open(path, "rb"),
}
MAX_RATIO = 256
"""Maximum size of an unpacked log over that of the file: logs reach 100, spaces 1,000 and more."""
FREE_BYTES = 256 << 20
"""Up to this size a log may have any ratio."""
BROKEN_COMPRESSION = (EOFError, OSError, lzma.LZMAError, zlib.error, zstandard.ZstdError)
NOT_READ: Mapping[bytes, str] = {
    b"%PDF": "a PDF; export its numbers as CSV",
    b"PK\x03\x04": "a zip archive (perhaps of a spreadsheet, a checkpoint or several logs); unpack it or export CSV",
    b"PAR1": "a Parquet file; convert it to CSV or JSON Lines",
    b"ARROW1": "an Arrow file; convert it to CSV or JSON Lines",
    b"\x89PNG": "an image; export the numbers of the chart as CSV",
    b"\xff\xd8\xff": "an image; export the numbers of the chart as CSV",
    b"\x89HDF": "an HDF5 file; convert it to CSV or JSON Lines",
    b"\x93NUMPY": "a NumPy array; convert it to CSV with a column per metric",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "text in UTF-16; convert it to UTF-8"),
    b"BZh": "a bzip2 archive; unpack it",
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a pickle; convert it to JSON or CSV"),
}


def format_of(path: Path) -> LogFormat:
    """Return the format of a file, maybe compressed, a folder, or a run (`mlflow.db/NAME`). Errors: InvalidInput."""
    head = b"" if path.is_dir() else _head(path, lambda file: store_of(file).open("rb"))
    opened = next((opened for start, opened in COMPRESSED.items() if head.startswith(start)), None)
    if opened is None:
        return _known_format(LogSample(path, head), path)
    inner = LogSample(path.with_suffix(""), _head(path, opened))
    return replace(
        _known_format(inner, path),
        read=partial(_read_compressed, opened=opened),
        files=lambda path: [path],
        has_lines=False,
    )


def _head(path: Path, opened: Callable[[Path], Any]) -> bytes:
    try:
        with opened(path) as file:
            return bytes(file.read(HEAD_BYTES))
    except BROKEN_COMPRESSION as error:
        raise InvalidInput(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _known_format(sample: LogSample, path: Path) -> LogFormat:
    kind = next((kind for start, kind in NOT_READ.items() if sample.data.startswith(start)), None)
    for known in () if kind else LOG_FORMATS:
        if known.matches(sample):
            return known
    names = "; ".join(known.description for known in LOG_FORMATS)
    if sample.path.is_dir():
        files = sorted(file.name for file in sample.path.iterdir())
        found = f"is a folder without a log of a tracker (it has {', '.join(files[:5]) or 'no files'}); name a file"
    elif not sample.data.strip():
        found = "is empty"
    else:
        found = f"is {kind}" if kind else "is not text"
    raise InvalidInput(str(path), f"{found}; it has no known format; known are: {names}")


def _read_compressed(path: Path, *, opened: Callable[[Path], BinaryIO]) -> Iterator[LogItem]:
    """Yield the rows of a compressed file from an unpacked copy. Errors: InvalidInput."""
    with TemporaryDirectory(prefix="trmon-log-") as folder:
        copy = Path(folder, path.stem)
        try:
            with opened(path) as packed, copy.open("wb") as file:
                _unpack(packed, file, most_bytes=max(FREE_BYTES, MAX_RATIO * path.stat().st_size))
        except BROKEN_COMPRESSION as error:
            raise InvalidInput(str(path), f"cannot be unpacked: {error}") from error
        try:
            yield from format_of(copy).read(copy)
        except InvalidInput as error:
            raise InvalidInput(str(path), error.message) from error


def _unpack(packed: BinaryIO, file: BinaryIO, *, most_bytes: int) -> None:
    """Copy what is packed. Errors: OSError if it is longer than that."""
    n_bytes = 0
    while piece := packed.read(1 << 20):
        n_bytes += len(piece)
        if n_bytes > most_bytes:
            raise OSError(
                f"it expands to over {most_bytes >> 20} MiB, over {MAX_RATIO} times its size; unpack it first"
            )
        file.write(piece)


def holds_log(path: Path) -> bool:
    """Whether a path is a file, a run in a file, or a folder with a log in it."""
    if path.is_dir():
        return any(known.matches(LogSample(path, b"")) for known in LOG_FORMATS)
    return store_of(path).is_file()

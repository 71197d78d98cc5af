"""All formats of logs that can be read, and which of them a file has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.domain.errors import InvalidInput
from trmon.logs.console import CONSOLE
from trmon.logs.csv_table import CSV
from trmon.logs.json_logs import JSON, JSON_LINES, TRAINER_STATE
from trmon.logs.log_format import LogFormat, LogSample
from trmon.logs.mlflow_store import MLFLOW, store_of
from trmon.logs.tensorboard import TENSORBOARD
from trmon.logs.wandb import WANDB

LOG_FORMATS: tuple[LogFormat, ...] = (TRAINER_STATE, TENSORBOARD, WANDB, MLFLOW, JSON_LINES, JSON, CSV, CONSOLE)
"""Of several formats that match, the first is taken; the console output comes last, since any text may contain it."""
HEAD_BYTES = 1 << 16


def format_of(path: Path) -> LogFormat:
    """Return the format of a file, a folder, or a run in a file (`mlflow.db/NAME`).

    Errors: InvalidInput if it cannot be read or has no known format.
    """
    try:
        data = b""
        if not path.is_dir():
            with store_of(path).open("rb") as file:
                data = file.read(HEAD_BYTES)
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    sample = LogSample(path, data)
    for known in LOG_FORMATS:
        if known.matches(sample):
            return known
    names = "; ".join(known.description for known in LOG_FORMATS)
    raise InvalidInput(str(path), f"has no known format; known are: {names}")


def holds_log(path: Path) -> bool:
    """Whether a path is a file, a run in a file, or a folder with a log in it."""
    if path.is_dir():
        return any(known.matches(LogSample(path, b"")) for known in LOG_FORMATS)
    return store_of(path).is_file()


def read_log(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a log file. Errors: InvalidInput if its format is not known or it is malformed."""
    return sound_rows(format_of(path), path)


def sound_rows(known: LogFormat, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a log file. Errors: InvalidInput for a defect that is not its cut-off end."""
    for item in known.read(path):
        if not isinstance(item, LogDefect):
            yield item.values
        elif not item.is_end:
            raise InvalidInput(f"{path}:{item.line}" if item.line else str(path), item.reason)

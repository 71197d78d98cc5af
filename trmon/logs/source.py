"""A log as every command reads it: its file, its format, and the outcome of a first reading."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from trmon.domain.analysis.logged_steps import LogItems, LogSurvey, survey_log
from trmon.domain.errors import InvalidInput
from trmon.logs.log_format import LogFormat
from trmon.logs.registry import format_of
from trmon.logs.tables import metric_of_file

STANDARD_INPUT = "-"


def is_url(given: str) -> bool:
    """Whether a log is given by the address of a server."""
    return given.startswith(("http://", "https://"))


@contextmanager
def log_file(given: str, *, standard_input: IO[bytes]) -> Iterator[Path]:
    """Return the file of a log: a path, or a copy of "-" or of a run's address in MLflow. Errors: InvalidInput."""
    if given != STANDARD_INPUT and not is_url(given):
        yield Path(given)
        return
    with TemporaryDirectory(prefix="trmon-log-") as folder:
        if is_url(given):
            from trmon.logs.mlflow_server import copy_run

            copied = Path(folder, "mlflow.jsonl")
            copy_run(given, copied)
        else:
            copied = Path(folder, "standard-input")
            with copied.open("wb") as file:
                shutil.copyfileobj(standard_input, file)
        try:
            yield copied
        except InvalidInput as error:
            raise InvalidInput(error.field.replace(str(copied), given), error.message) from error


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, its format, and the outcome of a first reading."""

    path: Path
    format: LogFormat
    survey: LogSurvey

    @classmethod
    def of(cls, path: Path, *, name: str | None = None, mapped: Mapping[str, str] | None = None) -> LogSource:
        """Read a log for the first time.

        Args: name: what to call it in errors; mapped: signals by names that the user mapped.
        Errors: InvalidInput if it cannot be read or has no row of metrics.
        """
        found = format_of(path)
        mapped = {**(mapped or {})}
        if (signal := mapped.get("Value") or mapped.get("value")) is not None:
            # The column of a chart's CSV, whose rows have the name of the file.
            mapped.setdefault(metric_of_file(path), signal)
        return cls(path, found, survey_log(found.read(path), source=name or str(path), mapped=mapped))

    def items(self) -> LogItems:
        """Read the rows and defects once more. Errors: InvalidInput if the log cannot be read any more."""
        return self.format.read(self.path)

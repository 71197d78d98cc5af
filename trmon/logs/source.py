"""A log as every command reads it: its file, its format, and the outcome of a first reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogItems, LogSurvey, survey_log
from trmon.logs.log_format import LogFormat
from trmon.logs.registry import format_of


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
        return cls(path, found, survey_log(found.read(path), source=name or str(path), mapped=mapped))

    def items(self) -> LogItems:
        """Read the rows and defects once more. Errors: InvalidInput if the log cannot be read any more."""
        return self.format.read(self.path)

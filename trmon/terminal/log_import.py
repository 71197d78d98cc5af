"""Import the log of a trainer into a running service, as a run by its scalars."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogSurvey, logged_steps, survey_log
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.logs import LogFormat, format_of
from trmon.terminal.log_messages import LogMessages, RunMessage
from trmon.terminal.report_upload import ReportUploader, bundled
from trmon_client.core import wire

GENERIC_FILE = re.compile(r"trainer_state\.json|.*tfevents.*|run-.*\.wandb")
"""Files whose names tell less of the run than that of their folder."""
NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
CHECKPOINT = re.compile(r"checkpoint-\d+")


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, its format, and what a first reading told of it."""

    path: Path
    format: LogFormat
    survey: LogSurvey

    @classmethod
    def of(cls, path: Path) -> LogSource:
        """Read a log for the first time. Errors: InvalidInput if it cannot be read or has no row of metrics."""
        found = format_of(path)
        return cls(path, found, survey_log(found.read(path), source=str(path)))

    @property
    def framework(self) -> str | None:
        """The framework whose metric names the log has."""
        return self.survey.table.framework if self.survey.table else None


@dataclass(slots=True)
class LogImport:
    """What an import did: how many messages were new, how many the service had, and what was not read as it stands."""

    steps: set[tuple[int, int]] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    defects: list[LogDefect] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def n_attempts(self) -> int:
        """How many attempts the log has."""
        return len({attempt for attempt, _ in self.steps})


def import_log(
    source: LogSource,
    key: RunKey,
    *,
    uploader: ReportUploader,
    on_row: Callable[[], object] = lambda: None,
    is_ended: bool = True,
    is_wanted: Callable[[RunMessage], bool] = lambda _: True,
) -> LogImport:
    """Send a log to a service; what the service has already is not stored again.

    Args: on_row: called after each row; is_ended: whether the run ends with the log; is_wanted: whether to send a
    message. Errors: InvalidInput, ServiceError.
    """
    done = LogImport()
    now = time.time() if is_ended else None
    messages = filter(is_wanted, messages_of(source, key, now=now, done=done, on_row=on_row))
    for bundle in bundled(map(wire.encode, messages)):
        for ack in uploader.post(bundle).acks:
            done.counts[ack.status] += 1
            if ack.problem:
                done.problems.append(ack.problem)
    return done


def messages_of(
    source: LogSource,
    key: RunKey,
    *,
    now: float | None,
    done: LogImport | None = None,
    on_row: Callable[[], object] = lambda: None,
) -> Iterator[RunMessage]:
    """Yield the messages of a log.

    Args: now: the time of the run's end in seconds since 1970, None if it goes on; done: records steps and defects.
    Errors: InvalidInput if the log cannot be read any more.
    """
    done = done or LogImport()
    config = {"imported": {"format": source.format.name, "framework": source.framework}}
    messages = LogMessages(key, config=config)
    for item in logged_steps(source.format.read(source.path), source.survey):
        if isinstance(item, LogDefect):
            done.defects.append(item)
            continue
        done.steps.add((item.attempt, item.step))
        yield from messages.of_step(item)
        on_row()
    if now is not None:
        yield from messages.at_end(now=now)


def run_name(path: Path) -> str:
    """Return the name of a run after its log: that of the file or, if it tells nothing, of its folder."""
    path = path.resolve()
    named = path if path.is_dir() or path.parent.is_file() else path.with_suffix("")
    if GENERIC_FILE.fullmatch(path.name) and not path.is_dir():
        named = path.parent
    if CHECKPOINT.fullmatch(named.name):
        named = named.parent
    name = NO_NAME.sub("-", named.name).strip("-._")[:128]
    if not name:
        raise InvalidInput("--run", f"is required: {path.name!r} gives no name")
    return name

"""`trmon import`: logs of trainers into a running service, archives into a database."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer
from msgspec import structs
from rich.console import Console
from rich.progress import Progress

from trmon.cli.command import AllNames, DataDir, NameMapping, echo_error, given_mapping, plain_errors
from trmon.cli.running_service import ReportUploader, bundled, uploader_to
from trmon.cli.stored_runs import MANIFEST
from trmon.domain.analysis.logged_steps import LoggedStep, LogTally, logged_steps
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.configuration import IMPORTED
from trmon.domain.identity import RunKey, checked_name
from trmon.logs import LogSource, log_file
from trmon.terminal.log_text import log_lines, log_read_info
from trmon_client.core import wire

RunMessage: TypeAlias = wire.Start | wire.Scalars | wire.Finish
SEQUENCE_BYTES = 7
"""A sequence number is below 2**62."""


class LogMessages:
    """Makes the messages of a run. Args: imported: what its configuration says of the log."""

    def __init__(self, key: RunKey, *, imported: dict[str, Any]) -> None:
        self._key = key
        self._imported = imported
        self._attempt: int | None = None
        self._origin: dict[str, Any] = {}
        self._n_steps = 0

    def of_step(self, step: LoggedStep) -> Iterator[RunMessage]:
        """Yield the scalars of a step, after the start of its attempt if it is the first."""
        if step.attempt != self._attempt:
            self._attempt = step.attempt
            name = _attempt_name(step)
            self._origin = {"project": self._key.project, "run": self._key.run, "attempt": name, "launch": name}
            config = {IMPORTED: {**self._imported, "timed": bool(step.logged_at)}}
            yield wire.Start(**self._origin, sent_at=step.logged_at, config=config, client="trmon import")
        self._n_steps += 1
        names = iter(sorted(step.scalars))
        while some := list(islice(names, wire.MAX_SCALARS)):
            values: dict[str, wire.JsonNumber] = {name: step.scalars[name] for name in some}
            sequence = _digest(step.step, sorted(values.items()))
            yield wire.Scalars(**self._origin, sent_at=step.logged_at, sequence=sequence, step=step.step, values=values)

    def at_end(self, *, now: float) -> Iterator[RunMessage]:
        """Yield the end of the run. Args: now: seconds since 1970."""
        if self._origin:
            sequence = _digest(self._n_steps, [])
            yield wire.Finish(**self._origin, sent_at=now, sequence=sequence, reason=wire.EndReason.CLOSED.value)


def _attempt_name(first: LoggedStep) -> str:
    """Return the name of an attempt; its first step may have more scalars later if its writer is known."""
    known = first.writer or sorted(first.scalars.items())
    return f"import-{_digest(first.step, [first.attempt, known]):x}"


def _digest(number: int, content: list[Any]) -> int:
    packed = msgspec.msgpack.encode((number, content))
    return int.from_bytes(blake2b(packed, digest_size=SEQUENCE_BYTES).digest(), "big")


GENERIC_FILE = re.compile(r"trainer_state\.json|.*tfevents.*|run-.*\.wandb")
"""Names of files that say less about the run than the name of their folder."""
NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
CHECKPOINT = re.compile(r"checkpoint-\d+")


@dataclass(slots=True)
class LogImport:
    """The outcome of an import: what was read, and how many messages were new, or known to the service."""

    format_name: str
    read: LogTally
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


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
    done = LogImport(source.format.name, LogTally(source.survey))
    now = time.time() if is_ended else None
    messages = filter(is_wanted, messages_of(source, key, now=now, read=done.read, on_row=on_row))
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
    read: LogTally | None = None,
    on_row: Callable[[], object] = lambda: None,
) -> Iterator[RunMessage]:
    """Yield the messages of a log: of a whole one by step, as a step is judged once the next one begins.

    Args: now: the end of the run, seconds since 1970, None while it continues; read: records what is read.
    Errors: InvalidInput if the log cannot be read any more.
    """
    read = read or LogTally(source.survey)
    messages = LogMessages(key, imported={"format": source.format.name, "framework": source.survey.framework})

    def as_read() -> Iterator[RunMessage]:
        for item in logged_steps(source.items(), source.survey):
            read.add(item)
            if isinstance(item, LoggedStep):
                yield from messages.of_step(item)
                on_row()

    yield from as_read() if now is None or source.survey.is_in_order else _by_step(as_read())
    if now is not None:
        yield from messages.at_end(now=now)


def _by_step(messages: Iterable[RunMessage]) -> Iterator[RunMessage]:
    """Yield the messages of each attempt in the order of steps, and their times so that they follow each other."""
    for _, of_attempt in groupby(messages, key=attrgetter("attempt")):
        start, *others = of_attempt
        sent_at = start.sent_at
        yield start
        for message in sorted(others, key=attrgetter("step")):
            sent_at = max(sent_at, message.sent_at)
            yield structs.replace(message, sent_at=sent_at)


def run_name(path: Path) -> str:
    """Return the name of a run after its log: that of the file or, if it says nothing, of its folder."""
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


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of runs after their logs; those of equal names have their folders before them, then a number."""
    names = [run_name(path) for path in paths]
    counts = Counter(names)
    named = [
        f"{run_name(path.resolve().parent)}-{name}" if counts[name] > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    for i, name in enumerate(named):
        seen[name] += 1
        if seen[name] > 1:
            named[i] = f"{name}-{seen[name]}"
    return named


SHOWN_DEFECTS = 20


def import_(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR|URL...",
            help="Logs of trainers (files, folders, URLs of runs in MLflow), or a folder of `trmon export`.",
        ),
    ],
    project: Annotated[str | None, typer.Option(help="The project; an archive has one.")] = None,
    run: Annotated[str | None, typer.Option(help="The run of one log; by default named after the file.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service that gets the logs.")] = None,
    data_dir: DataDir = None,
    mapping: NameMapping = None,
    verbose: AllNames = False,
) -> None:
    """Import logs of trainers, or an archive of `trmon export`; safe to repeat.

    A log becomes a run by its scalars; exits with 1 if a line could not be imported as it is written. A run of an
    archive is imported whole or not at all, never into another run, and into the database itself.
    """
    with plain_errors():
        if _is_archive(paths, project=project, data_dir=data_dir):
            _import_archive(Path(paths[0]), project=project, data_dir=data_dir)
            return
        if data_dir is not None:
            raise InvalidInput("--data-dir", "is for archives; logs are sent to a running service (--url)")
        if project is None:
            raise InvalidInput("--project", "is required to import a log")
        if run is not None and len(paths) > 1:
            raise InvalidInput("--run", "is for one log; several logs are separate runs")
        with closing(uploader_to(url)) as uploader:
            names = [run] if run is not None else run_names(list(map(Path, paths)))
            keys = [RunKey.checked(project, name) for name in names]
            mapped = given_mapping(mapping)
            sound = [
                _import_log(path, key, uploader, mapped=mapped, is_verbose=verbose)
                for path, key in zip(paths, keys, strict=True)
            ]
        if not all(sound):
            raise typer.Exit(1)


def _is_archive(paths: Sequence[str], *, project: str | None, data_dir: Path | None) -> bool:
    """Whether a folder is an archive, or is given as one: that of a log is given with a project."""
    [path, *others] = map(Path, paths)
    is_given_as_one = data_dir is not None or project is None
    return not others and path.is_dir() and (is_given_as_one or (path / MANIFEST).exists())


def _import_log(
    given: str, key: RunKey, uploader: ReportUploader, *, mapped: Mapping[str, str], is_verbose: bool
) -> bool:
    """Import one log and print what was read; return whether all of it was imported as it is written."""
    terminal = Console(stderr=True)
    with (
        log_file(given, standard_input=sys.stdin.buffer) as file,
        Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
    ):
        source = LogSource.of(file, name=given, mapped=mapped)
        task = progress.add_task(str(key), total=source.survey.n_rows)
        done = import_log(source, key, uploader=uploader, on_row=lambda: progress.advance(task))
    first, *others = log_lines(log_read_info(done.read, format_name=done.format_name), is_verbose=is_verbose)
    typer.echo(f"{key}: {'imported' if done.counts['stored'] else 'already present'}: {first}")
    for line in others:
        typer.echo(line)
    defects = done.read.defects
    for defect in defects[:SHOWN_DEFECTS]:
        echo_error(f"{given}: {defect}")
    if len(defects) > SHOWN_DEFECTS:
        echo_error(f"{given}: and {len(defects) - SHOWN_DEFECTS} more")
    for problem in dict.fromkeys(done.problems):
        echo_error(f"{given}: the service refuses a message: {problem}")
    return done.read.is_whole and not done.problems


def _import_archive(directory: Path, *, project: str | None, data_dir: Path | None) -> None:
    from trmon.cli.database import open_store, operator
    from trmon.domain.access import AuditAction
    from trmon.store.repositories.archives import ImportOutcome

    with open_store(data_dir, making=True) as store:
        renamed = None if project is None else checked_name(project, field="--project")
        for run in store.archives.import_project(directory, project=renamed):
            if run.outcome is ImportOutcome.IMPORTED:
                store.audit.record(
                    operator(),
                    AuditAction.RUN_IMPORT,
                    at=time.time(),
                    target=str(run.key),
                    project=run.key.project,
                    after={"from": str(directory.resolve())},
                ).result()
            typer.echo(f"{run.key}: {run.outcome.value}")

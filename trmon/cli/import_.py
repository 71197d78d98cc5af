"""`trmon import`: logs of trainers into a running service, archives into a database."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from trmon.cli.command import DataDir, echo_error, plain_errors
from trmon.cli.running_service import uploader_to
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey, checked_name
from trmon.terminal.log_import import LogImport, LogSource, import_log, run_name
from trmon.terminal.report_upload import ReportUploader

ARCHIVE_FILE = "manifest.json"
SHOWN_DEFECTS = 20


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR...", help="Logs of trainers, or a folder that `trmon export` wrote."),
    ],
    project: Annotated[str | None, typer.Option(help="The project; an archive has one.")] = None,
    run: Annotated[str | None, typer.Option(help="The run of one log; by default named after the file.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service that gets the logs.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Import logs of trainers, or an archive of `trmon export`; safe to repeat.

    A log becomes a run by its scalars; exits with 1 if a line could not be imported as it is written. A run of an
    archive is imported whole or not at all, never into another run, and into the database itself.
    """
    with plain_errors():
        if _is_archive(paths, project=project, data_dir=data_dir):
            _import_archive(paths[0], project=project, data_dir=data_dir)
            return
        if data_dir is not None:
            raise InvalidInput("--data-dir", "is for archives; logs are sent to a running service (--url)")
        if project is None:
            raise InvalidInput("--project", "is required to import a log")
        if run is not None and len(paths) > 1:
            raise InvalidInput("--run", "is for one log; several logs are runs of their own")
        with closing(uploader_to(url)) as uploader:
            keys = [RunKey.checked(project, run or run_name(path)) for path in paths]
            sound = [_import_log(path, key, uploader) for path, key in zip(paths, keys, strict=True)]
        if not all(sound):
            raise typer.Exit(1)


def _is_archive(paths: list[Path], *, project: str | None, data_dir: Path | None) -> bool:
    """Whether a folder is an archive, or is given as one: that of a log is given with a project."""
    [path, *others] = paths
    is_given_as_one = data_dir is not None or project is None
    return not others and path.is_dir() and (is_given_as_one or (path / ARCHIVE_FILE).exists())


def _import_log(path: Path, key: RunKey, uploader: ReportUploader) -> bool:
    """Import one log and print what was done; return whether all of it was imported as it is written."""
    source = LogSource.of(path)
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(str(key), total=source.survey.n_rows)
        done = import_log(source, key, uploader=uploader, on_row=lambda: progress.advance(task))
    typer.echo(_summary(key, source, done))
    for defect in done.defects[:SHOWN_DEFECTS]:
        echo_error(f"{path}: {defect}")
    if len(done.defects) > SHOWN_DEFECTS:
        echo_error(f"{path}: and {len(done.defects) - SHOWN_DEFECTS} more")
    for problem in dict.fromkeys(done.problems):
        echo_error(f"{path}: the service refuses a message: {problem}")
    return not (done.defects or done.problems)


def _summary(key: RunKey, source: LogSource, done: LogImport) -> str:
    names = f"{source.framework}'s metric names" if source.framework else "trmon's metric names"
    restarts = f" in {done.n_attempts} attempts" if done.n_attempts > 1 else ""
    news = "imported" if done.counts["stored"] else "already present"
    return f"{key}: {len(done.steps)} steps{restarts} {news} ({source.format.name}, {names})"


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

"""`trmon watch`: follow a log that is being written."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from trmon.cli.command import echo_error, plain_errors
from trmon.cli.running_service import uploader_to
from trmon.domain.identity import RunKey
from trmon.terminal.log_import import LogImport, run_name
from trmon.terminal.log_watch import LogWatch


def watch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The log that a trainer is writing, a file or a folder.")
    ],
    project: Annotated[str, typer.Option(help="The project.")],
    run: Annotated[str | None, typer.Option(help="The run; by default named after the file.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks at the file.")] = 5.0,
) -> None:
    """Follow a log that a trainer is writing, and send its new steps to a running service, until interrupted.

    The run is paused then; `trmon import` of the whole log ends it.
    """
    with plain_errors():
        key = RunKey.checked(project, run or run_name(file))
        stop = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        with closing(uploader_to(url)) as uploader:
            watch = LogWatch(file, key, uploader=uploader)
            told: set[str] = set()
            for done in watch.follow(stop, every_seconds=every):
                for text in _warnings(file, done):
                    if text not in told:
                        told.add(text)
                        echo_error(text)
                if not isinstance(done, str):
                    newest = max((step for _, step in done.steps), default=None)
                    typer.echo(f"{key}: step {newest}, {done.counts['stored']} new messages")
            watch.pause(now=time.time())


def _warnings(file: Path, done: LogImport | str) -> list[str]:
    """Return what to tell of a reading; a line that is being written is no defect."""
    if isinstance(done, str):
        return [f"trmon: {done}"]
    return [f"{file}: {item}" for item in done.defects if not item.is_end]

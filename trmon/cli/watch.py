"""`trmon watch`: follow a log that is being written."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Annotated

import typer

from trmon.cli.command import NameMapping, echo_error, given_mapping, plain_errors
from trmon.cli.import_ import LogImport, RunMessage, import_log, run_name
from trmon.cli.running_service import ReportUploader, uploader_to
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.logs import LogSource, format_of
from trmon.terminal.log_text import log_lines, log_read_info
from trmon_client.api import ServiceError
from trmon_client.core import wire

READING_SHARE = 0.1
"""Of the time at most: a long log is read less often."""
TAIL_BYTES = 1 << 16


class LogWatch:
    """Reads a log again whenever it has changed, and sends the steps that were not sent before."""

    def __init__(
        self, path: Path, key: RunKey, *, uploader: ReportUploader, mapped: Mapping[str, str] | None = None
    ) -> None:
        self._path = path
        self._mapped = mapped
        self._key = key
        self._uploader = uploader
        self._sent: set[tuple[str, type[RunMessage], int]] = set()
        self._last: wire.Origin | None = None
        self._seen: list[tuple[Path, int, int]] = []

    def follow(self, stop: Event, *, every_seconds: float) -> Iterator[LogImport | str]:
        """Yield what each reading sent, or why nothing can be read or sent for now, until stopped."""
        wait_seconds = 0.0
        while not stop.wait(wait_seconds):
            began_at = time.monotonic()
            try:
                yield from self._read_if_changed()
            except (InvalidInput, ServiceError) as error:
                yield str(error)
            wait_seconds = max(every_seconds, (time.monotonic() - began_at) / READING_SHARE)

    def pause(self, *, now: float) -> None:
        """Tell the service that no more is sent for now; the run may continue. Errors: ServiceError."""
        if self._last is None:
            return
        pause = wire.Pause(
            project=self._key.project,
            run=self._key.run,
            attempt=self._last.attempt,
            launch=self._last.launch,
            sent_at=now,
            sequence=int(now * 1000),
            reason="trmon watch was stopped",
        )
        self._uploader.post([wire.encode(pause)])

    def _read_if_changed(self) -> Iterator[LogImport]:
        found = format_of(self._path)
        seen = [_size_and_time(file) for file in found.files(self._path)]
        if seen == self._seen:
            return
        self._seen = seen
        with _whole_lines(self._path) if found.has_lines else nullcontext(self._path) as log:
            try:
                source = LogSource.of(log, name=str(self._path), mapped=self._mapped)
                yield import_log(source, self._key, uploader=self._uploader, is_ended=False, is_wanted=self._is_new)
            except InvalidInput as error:
                raise InvalidInput(str(self._path), error.message) from error
            except ServiceError:
                self._seen = []
                self._sent.clear()
                raise

    def _is_new(self, message: RunMessage) -> bool:
        key = (message.attempt, type(message), message.sequence)
        is_new = key not in self._sent
        self._sent.add(key)
        self._last = message
        return is_new


def _size_and_time(file: Path) -> tuple[Path, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise InvalidInput(str(file), f"cannot be read: {error.strerror or error}") from error
    return file, found.st_size, found.st_mtime_ns


@contextmanager
def _whole_lines(path: Path) -> Iterator[Path]:
    """Return a copy of a file up to its last line end: a number in the line that is being written may be cut off."""
    with TemporaryDirectory(prefix="trmon-watch-") as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        with copy.open("r+b") as file:
            size = end = file.seek(0, 2)
            while end > 0:
                begin = max(0, end - TAIL_BYTES)
                file.seek(begin)
                found = file.read(end - begin).rfind(b"\n")
                if found >= 0:
                    size = begin + found + 1
                    break
                size = end = begin
            file.truncate(size)
        yield copy


def watch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The log that a trainer is writing, a file or a folder.")
    ],
    project: Annotated[str, typer.Option(help="The project.")],
    run: Annotated[str | None, typer.Option(help="The run; by default named after the file.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks at the file.")] = 5.0,
    mapping: NameMapping = None,
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
            watch = LogWatch(file, key, uploader=uploader, mapped=given_mapping(mapping))
            said: set[str] = set()
            for done in watch.follow(stop, every_seconds=every):
                for text in _warnings(file, done):
                    if text not in said:
                        said.add(text)
                        echo_error(text)
                if not isinstance(done, str):
                    first, *others = log_lines(log_read_info(done.read, format_name=done.format_name))
                    typer.echo(f"{key}: {done.counts['stored']} new messages: {first}")
                    for text in others:
                        if text not in said:
                            said.add(text)
                            typer.echo(text)
            watch.pause(now=time.time())


def _warnings(file: Path, done: LogImport | str) -> list[str]:
    """Return what to tell of a reading; a line that is being written is no defect."""
    if isinstance(done, str):
        return [f"trmon: {done}; watching on"]
    return [f"{file}: {item}" for item in done.read.defects if not item.is_end]

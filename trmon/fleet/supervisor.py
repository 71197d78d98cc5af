"""Child processes of the service: started, awaited, restarted when they exit or hang, and replaced on SIGHUP."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from select import select
from types import FrameType
from typing import IO

import structlog

from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.fleet.heartbeats import RestartDelay, Watchdog

STOP_SECONDS = 30.0
"""How long a child may take to end after SIGTERM."""
POLL_SECONDS = 0.2
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
READY_SECONDS = 60.0
"""How long a replacement may take to be ready; at the start a process is waited for as long as it runs."""
CHECK_SECONDS = 0.2
READ_BYTES = 1 << 12
READY_PREFIX = "trmon_"
"""How the first line of a child's stdout begins, which it prints once it is ready."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ChildProcess:
    """A command and the process that runs it; a later process of the same command is another object.

    Args: environment: variables instead of this process's own; stdout, stderr: as in `subprocess.Popen`;
    ends_with_parent: send the process SIGTERM when the thread that started it ends, even by SIGKILL (Linux only);
    beats: give the command `--heartbeat-fd`, a pipe on which it beats; hung_seconds: how long it may be silent.
    """

    command: Sequence[str]
    pass_fds: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    stdout: IO[str] | int | None = None
    stderr: IO[str] | None = None
    ends_with_parent: bool = False
    beats: bool = False
    hung_seconds: float = HUNG_SECONDS
    restart_delay: RestartDelay = field(default_factory=RestartDelay)
    process: subprocess.Popen[str] | None = field(default=None, init=False)
    _beat_fd: int | None = field(default=None, init=False)
    _watchdog: Watchdog = field(default_factory=Watchdog, init=False)
    _has_ended: bool = field(default=False, init=False)

    def start(self) -> None:
        """Start the process. Errors: OSError."""
        self.restart_delay.started()
        self._has_ended, self._watchdog = False, Watchdog(hung_seconds=self.hung_seconds)
        theirs: list[int] = []
        if self.beats:
            self._close_pipe()
            self._beat_fd, write_fd = os.pipe()
            os.set_blocking(self._beat_fd, False)
            theirs = [write_fd]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                [*self.command, *(part for fd in theirs for part in ("--heartbeat-fd", str(fd)))],
                stdin=subprocess.DEVNULL,
                stdout=self.stdout,
                stderr=self.stderr,
                env=self.environment,
                pass_fds=[*self.pass_fds, *theirs],
                preexec_fn=_end_with_parent if self.ends_with_parent and sys.platform == "linux" else None,
                text=True,
            )
        finally:
            for fd in theirs:
                os.close(fd)

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        status = self._running.poll()
        if status is not None and not self._has_ended:
            self._has_ended = True
            self.restart_delay.ended()
        return status

    def heard(self) -> None:
        """Note a beat that came another way than by the pipe."""
        self._watchdog.heard()

    def is_hung(self, *, is_listening: bool = True) -> bool:
        """Whether the process has not beaten for too long a time in which this one ran; to be called each second.

        Args: is_listening: False while beats wait to be noted.
        """
        with suppress(BlockingIOError):
            if self._beat_fd is not None and os.read(self._beat_fd, READ_BYTES):
                self._watchdog.heard()
        return self._watchdog.tick(is_listening=is_listening)

    def read_line(self, *, timeout_seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> str | None:
        """Return the next line of a piped stdout, empty at its end; None after the timeout or once it is not wanted."""
        stdout = self._running.stdout
        assert stdout is not None, "stdout is a pipe"
        deadline = time.monotonic() + timeout_seconds
        while not select([stdout], [], [], POLL_SECONDS)[0]:
            if time.monotonic() > deadline or not is_wanted():
                return None
        return stdout.readline()

    def wait(self) -> int:
        """Wait until the process ends; return its exit status."""
        self._running.wait()
        status = self.status
        assert status is not None
        return status

    def terminate(self) -> None:
        """Send SIGTERM; does not wait."""
        self._running.terminate()

    def kill(self) -> None:
        """Send SIGKILL; does not wait."""
        self._running.kill()

    def stop(self, *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Send SIGTERM, wait, and kill the process if it does not end in time."""
        process = self._running
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._beat_fd is not None:
            os.close(self._beat_fd)
            self._beat_fd = None

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self.process is not None, "the child was not started"
        return self.process


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; runs in the child, before its command."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


class Supervisor:
    """Runs children until SIGTERM or SIGINT, and restarts each that exits or hangs. Their stdout must be a pipe."""

    def __init__(self, children: Sequence[ChildProcess], *, ready_seconds: float = READY_SECONDS) -> None:
        self._children = list(children)
        self._ready_seconds = ready_seconds
        self._is_stopping = False
        self._must_replace = False

    def run(self, *, ready: str) -> None:
        """Run until SIGTERM or SIGINT; print `ready` once all children are. Errors: NotReady if one exits before."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            for child in self._children:
                child.start()
            if all(map(self._starts, self._children)):
                print(ready, flush=True)
            elif not self._is_stopping:
                raise NotReady("a process did not start; see its log")
            while not self._is_stopping:
                self._check()
                time.sleep(CHECK_SECONDS)
        finally:
            self._stop()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._must_replace = True
        else:
            self._is_stopping = True

    def _check(self) -> None:
        for child in self._children:
            if child.status is None and child.beats and child.is_hung():
                log.error("process_hung", command=_name(child), silent_seconds=child.hung_seconds)
                child.kill()
                child.wait()
            if child.status is not None and child.restart_delay.seconds <= 0:
                log.error("process_exited", command=_name(child), status=child.status)
                child.stop()
                child.start()
        if self._must_replace:
            self._must_replace = False
            self._replace_all()

    def _starts(self, child: ChildProcess) -> bool:
        """Wait until a child is ready or exits: giving up on a slow one would start all of them again, as slowly."""
        while (line := self._first_line(child)) is None and not self._is_stopping:
            log.warning("process_starts_slowly", command=_name(child), waited_seconds=self._ready_seconds)
        return _is_ready(line)

    def _first_line(self, child: ChildProcess) -> str | None:
        return child.read_line(timeout_seconds=self._ready_seconds, is_wanted=lambda: not self._is_stopping)

    def _replace_all(self) -> None:
        """Stop each child only after its successor is ready: the port is always served."""
        for index, child in enumerate(self._children):
            successor = replace(child, restart_delay=RestartDelay())
            successor.start()
            if not _is_ready(self._first_line(successor)):
                if not self._is_stopping:
                    log.error("replacement_failed", command=_name(child))
                successor.stop()
                return
            self._children[index] = successor
            child.stop()

    def _stop(self) -> None:
        started = [child for child in self._children if child.process is not None]
        for child in started:
            child.terminate()
        for child in started:
            child.stop()


def _is_ready(line: str | None) -> bool:
    return line is not None and line.startswith(READY_PREFIX)


def _name(child: ChildProcess) -> str:
    """Return the subcommand and options, without `python -m trmon`."""
    return " ".join(child.command[3:])

"""One child process: start it, wait for the line that says it is ready, and end it."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from select import select
from typing import IO

RESTART_SECONDS = 1.0
"""Shortest time between two starts of the same command."""
STOP_SECONDS = 30.0
"""How long a child may take to end after SIGTERM."""
POLL_SECONDS = 0.2
_SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


@dataclass(slots=True)
class ChildProcess:
    """A command and the process that runs it; a later process of the same command is another object.

    Args: environment: variables instead of this process's own; stdout, stderr: as in `subprocess.Popen`;
    ends_with_parent: send the process SIGTERM when the thread that started it ends, even by SIGKILL (Linux only).
    """

    command: Sequence[str]
    pass_fds: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    stdout: IO[str] | int | None = None
    stderr: IO[str] | None = None
    ends_with_parent: bool = False
    started_at: float | None = None
    process: subprocess.Popen[str] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the process. Errors: OSError."""
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            stderr=self.stderr,
            env=self.environment,
            pass_fds=self.pass_fds,
            preexec_fn=_end_with_parent if self.ends_with_parent and sys.platform == "linux" else None,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return self._running.poll()

    @property
    def restart_in_seconds(self) -> float:
        """How long to wait before the command is started again; zero or less: start it now."""
        return 0.0 if self.started_at is None else self.started_at + RESTART_SECONDS - time.monotonic()

    def successor(self) -> ChildProcess:
        """Return a child of the same command that is not started."""
        return replace(self, started_at=None)

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
        return self._running.wait()

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

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self.process is not None, "the child was not started"
        return self.process


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; runs in the child, before its command."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)

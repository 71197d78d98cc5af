"""The supervisor: keeps processes of the service running, and replaces them one after the other on SIGHUP."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from select import select
from types import FrameType

import structlog

from trmon.domain.model.errors import NotReady

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.2
BACKOFF_SECONDS = 1.0
"""Shortest time between two starts of the same process."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ChildProcess:
    """One process: how it is started, and the one that runs now."""

    command: Sequence[str]
    pass_fds: Sequence[int] = ()
    process: subprocess.Popen[str] = field(init=False)
    started_at: float = 0.0

    def start(self) -> None:
        """Start it."""
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            self.command, stdout=subprocess.PIPE, pass_fds=self.pass_fds, text=True
        )
        self.started_at = time.monotonic()

    def is_ready(self, *, is_wanted: Callable[[], bool]) -> bool:
        """Wait for the line that says that it is ready, while that is wanted; return whether it came."""
        assert self.process.stdout is not None
        until = time.monotonic() + READY_SECONDS
        while not select([self.process.stdout], [], [], LOOK_SECONDS)[0]:
            if time.monotonic() > until or not is_wanted():
                return False
        return self.process.stdout.readline().startswith("trmon_")

    def stop(self) -> None:
        """Ask it to end; one that does not is killed."""
        terminate(self.process)


class Supervisor:
    """Runs children until it is told to end; one that ends by itself is started again."""

    def __init__(self, children: Sequence[ChildProcess]) -> None:
        self._children = children
        self._ending = False
        self._replacing = False

    def run(self, *, ready: str) -> None:
        """Run until SIGTERM or SIGINT; print a line once all are ready. Errors: NotReady when one cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._heard)
        try:
            for child in self._children:
                child.start()
            if all(map(self._comes, self._children)):
                print(ready, flush=True)
            elif not self._ending:
                raise NotReady("a process did not start; its log says why")
            while not self._ending:
                self._look()
                time.sleep(LOOK_SECONDS)
        finally:
            self._stop()

    def _heard(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._replacing = True
        else:
            self._ending = True

    def _look(self) -> None:
        for child in self._children:
            status = child.process.poll()
            if status is not None and time.monotonic() - child.started_at >= BACKOFF_SECONDS:
                log.error("process_ended", command=" ".join(child.command[3:]), status=status)
                terminate(child.process)
                child.start()
        if self._replacing:
            self._replacing = False
            self._replace()

    def _comes(self, child: ChildProcess) -> bool:
        return child.is_ready(is_wanted=lambda: not self._ending)

    def _replace(self) -> None:
        """Start each anew and, once it is ready, end its predecessor: somebody always answers."""
        for child in self._children:
            former = child.process
            child.start()
            if not self._comes(child):
                if not self._ending:
                    log.error("replacement_failed", command=" ".join(child.command[3:]))
                child.stop()
                child.process = former
                return
            terminate(former)

    def _stop(self) -> None:
        started = [child for child in self._children if child.started_at]
        for child in started:
            child.process.terminate()
        for child in started:
            child.stop()


def terminate(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, and kill it where it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()

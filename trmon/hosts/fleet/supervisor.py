"""Keeps child processes of the service running, and replaces them one by one on SIGHUP."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType

import structlog

from trmon.domain.model.errors import NotReady
from trmon.hosts.child_process import ChildProcess

READY_SECONDS = 60.0
"""How long a replacement may take to be ready; at the start a process is waited for as long as it runs."""
CHECK_SECONDS = 0.2
READY_PREFIX = "trmon_"
"""How the first line of a child's stdout begins, which it prints once it is ready."""

log = structlog.get_logger(__name__)


class Supervisor:
    """Runs children until SIGTERM or SIGINT, and restarts each one that exits. Their stdout must be a pipe."""

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
            if child.status is not None and child.restart_in_seconds <= 0:
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
            successor = child.successor()
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

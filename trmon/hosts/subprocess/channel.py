"""The line between the service and its worker's process, and what goes over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from trmon.domain.model.identity import BatchKey
from trmon.domain.state.run_update import RunUpdate
from trmon.runner.pass_changes import PassTally
from trmon.views.run_view_cache import RunView


@dataclass(frozen=True, slots=True)
class RunsChanged:
    """To the worker: runs of which something came, each with its revision."""

    revisions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """To the worker: each of the outcomes of a Write is on the disk or, with an error, is not."""

    number: int
    errors: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """To the worker: bring every run to rest, then end."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """From the worker: outcomes to be written."""

    number: int
    outcomes: tuple[RunUpdate, ...]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """From the worker, after a round: what is to be seen and counted; whoever hears it may send news again.

    A view in `rows` has no row of its own: it is that one of the batches in the outcome of its run, the newest written.
    """

    views: tuple[RunView, ...]
    rows: Mapping[int, BatchKey]
    dropped: tuple[int, ...]
    tallies: tuple[PassTally, ...]
    failures: tuple[str, ...]


class Channel:
    """One end of a pair of connected sockets; any thread may send, one receives."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._sending = Lock()

    def send(self, message: object) -> None:
        """Send an object. Errors: OSError when nobody is at the other end."""
        with self._sending:
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for an object. Errors: EOFError or OSError when nobody is at the other end any more."""
        return self._connection.recv()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

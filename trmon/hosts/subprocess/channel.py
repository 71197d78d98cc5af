"""The message channel between the service and its worker process, and the messages it carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from trmon.domain.health.run_summary import RunSummary
from trmon.domain.model.identity import BatchKey
from trmon.domain.state.run_update import RunUpdate
from trmon.runner.pass_changes import PassTally
from trmon.views.run_view_cache import RunView


@dataclass(frozen=True, slots=True)
class RunsChanged:
    """To the worker: runs with new messages or edits, each with its revision."""

    revisions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """To the worker: for each update of a CommitRequest None if it is committed, else the error."""

    number: int
    errors: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """To the worker: finish every run's pending work, then exit."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """From the worker: updates to commit."""

    number: int
    updates: tuple[RunUpdate, ...]


@dataclass(frozen=True, slots=True)
class SummariesMade:
    """From the worker: summaries of runs to store; one that cannot be stored is made again."""

    summaries: tuple[RunSummary, ...]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """From the worker, after each round: views and counts; the service may then send the next RunsChanged.

    `rows` names the batch of each view that is sent without its row: the row is in the run's last CommitRequest.
    """

    views: tuple[RunView, ...]
    rows: Mapping[int, BatchKey]
    dropped: tuple[int, ...]
    tallies: tuple[PassTally, ...]
    failures: tuple[str, ...]


class Channel:
    """One end of a pair of connected sockets; any thread may send, one thread receives."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._send_lock = Lock()

    def send(self, message: object) -> None:
        """Send an object. Errors: OSError if the other end is closed."""
        with self._send_lock:
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for an object. Errors: EOFError or OSError if the other end is closed."""
        return self._connection.recv()

    def close(self) -> None:
        """Close this end."""
        self._connection.close()

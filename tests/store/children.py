"""What child processes of store tests do, forked from a server that has imported the store, and killed by tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.store.builders import NOW, report_intake
from trmon.domain.messages import WriteOutcome, WriteResult
from trmon.store import Store
from trmon.store.lake.mover import LakeMover
from trmon.store.maintenance.restore import restore_backup

FORKS = multiprocessing.get_context("forkserver")
# Imported before a child is forked, which takes seconds.
FORKS.set_forkserver_preload([__name__, LakeMover.__module__])
CHILD_SECONDS = 120
Acknowledgement = tuple[int, WriteOutcome]
"""A step and what was answered to its report."""


def run_child(what: Callable[..., None], *arguments: Any, **options: Any) -> int:
    """Run a function in a child and return its exit status."""
    child = FORKS.Process(target=what, args=arguments, kwargs=options)
    child.start()
    child.join(CHILD_SECONDS)
    assert child.exitcode is not None
    return child.exitcode


@contextmanager
def appending(url: str) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """Run a child that appends reports; yield it and a pipe of acknowledgements. It is killed in the end."""
    ours, theirs = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=append_reports, args=(url, theirs))
    child.start()
    theirs.close()
    try:
        yield child, ours
    finally:
        child.kill()
        child.join(CHILD_SECONDS)
        ours.close()


def append_reports(url: str, acknowledged: Connection) -> None:
    """Append reports until the process is killed."""

    def answer(step: int, done: Future[WriteResult]) -> None:
        acknowledged.send((step, done.result().status))

    store = Store.open(url)
    store.migrate()
    for first in range(0, 1_000_000, 16):
        while store.writer.depth > 1000:
            time.sleep(0.001)
        intakes = [report_intake(step=step) for step in range(first, first + 16)]
        for step, future in enumerate(store.reports.append(intakes, now=NOW), first):
            future.add_done_callback(lambda done, step=step: answer(step, done))


def restore_until_killed(url: str, file: Path, *, n_changes: int) -> None:
    """Restore a backup, and die right before the nth link, rename or remove."""
    left = n_changes

    def kill_at(event: str, _: object) -> None:
        nonlocal left
        if event in ("os.link", "os.rename", "os.remove"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill_at)
    restore_backup(url, file)


def move_until_killed(url: str, lake_url: str, *, now: float, kill_at: str, environment: Mapping[str, str]) -> None:
    """Move everything. Args: kill_at: the point to die at, empty for none; "deleting" is before a deletion of rows."""

    def at_point(name: str) -> bool:
        if name == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    os.environ.update(environment)
    store = Store.open(url)
    lake = store.lake(lake_url)
    while lake.move_next(now=now, after_seconds=50.0, at_point=at_point) is not None:
        store.moved_rows.delete(may_continue=lambda: at_point("deleting"))
    lake.delete_runs(now=now)
    store.close()

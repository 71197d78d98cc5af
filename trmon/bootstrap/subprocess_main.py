"""The worker's process: `python -m trmon.hosts.subprocess DESCRIPTOR`, as trmon.hosts.subprocess.worker_process starts it."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from threading import Event, Thread

from trmon.bootstrap import gc_tuning
from trmon.bootstrap.background_services import judge_anew, vigil_of
from trmon.config import logs
from trmon.config.active_rules import rules_of
from trmon.config.settings import Settings
from trmon.hosts.fleet.view_sync import Mirror
from trmon.hosts.subprocess.channel import Leave, Line, News, Written
from trmon.hosts.subprocess.service_proxy import Office
from trmon.runner.worker import Worker
from trmon.store import Role, Store
from trmon.views.run_view_cache import Live

NICENESS = 5
"""Where cores are short, reports are acknowledged first: a trainer waits for that, nobody for a step's signals."""


def main(descriptor: int) -> None:
    """Watch the runs of the service at the other end of a line, until it says so."""
    # Whoever stops the service by its terminal or its group stops it alone: it says when this process may end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    line = Line(descriptor)
    settings: Settings = line.receive()
    logs.configure(settings)
    with ExitStack() as stack:
        store = Store.open(settings.store_url, role=Role.READER)
        stack.callback(store.close)
        leaving = Event()
        worker, office = _worker(settings, store, line, stack)
        Thread(target=_hear, args=(line, store, worker, office, leaving), name="trmon-line", daemon=True).start()
        gc_tuning.settle()
        worker.start()
        leaving.wait()
        worker.close()
        office.listen()


def _worker(settings: Settings, store: Store, line: Line, stack: ExitStack) -> tuple[Worker, Office]:
    live = Live(idle_after_seconds=settings.idle_after_seconds)
    # A change of the rules concerns all that is shown, also what is at rest.
    Mirror(store.outlooks, live, idle_after_seconds=settings.idle_after_seconds).fill(now=time.time())
    rules, office = rules_of(settings), Office(line, live)
    worker = Worker(
        store.runlog,
        outcomes=office,
        vigil=vigil_of(settings, rules=rules),
        display=office,
        observer=office,
        listen=office.listen,
        clock=time.time,
    )
    rules.watched_by(changed=lambda: judge_anew(worker, live), failed=lambda: None)
    rules.start()
    stack.callback(rules.close)
    return worker, office


def _hear(line: Line, store: Store, worker: Worker, office: Office, leaving: Event) -> None:
    """Take in what the service says. Without a service nothing can be written: the process ends at once."""
    while True:
        try:
            message = line.receive()
        except (EOFError, OSError):
            os._exit(1)
        if isinstance(message, Written):
            office.answered(message)
        elif isinstance(message, News):
            store.runlog.revised(message.revisions)
            worker.wake(message.revisions)
        elif isinstance(message, Leave):
            leaving.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The worker's process: `python -m trmon.bootstrap.subprocess_main DESCRIPTOR`, started by `worker_process`."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from threading import Event, Thread

from trmon.bootstrap import gc_tuning
from trmon.bootstrap.background_services import reevaluate_runs, watch_config_of
from trmon.config import logs
from trmon.config.active_rules import active_rules_of
from trmon.config.settings import Settings
from trmon.hosts.fleet.view_sync import ViewSync
from trmon.hosts.subprocess.channel import Channel, CommitResult, RunsChanged, Shutdown
from trmon.hosts.subprocess.service_proxy import ServiceProxy
from trmon.runner.worker import Worker
from trmon.store import ProcessRole, Store
from trmon.views.run_view_cache import RunViewCache

NICENESS = 5
"""Where cores are short, reports are acknowledged first: a trainer waits for that, nobody for a step's signals."""


def main(descriptor: int) -> None:
    """Watch the runs of the service at the other end of a line, until it says so."""
    # Whoever stops the service by its terminal or its group stops it alone: it says when this process may end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    line = Channel(descriptor)
    settings: Settings = line.receive()
    logs.configure_logging(settings)
    with ExitStack() as stack:
        store = Store.open(settings.store_url, role=ProcessRole.READER)
        stack.callback(store.close)
        leaving = Event()
        worker, service_proxy = _worker(settings, store, line, stack)
        Thread(target=_hear, args=(line, store, worker, service_proxy, leaving), name="trmon-line", daemon=True).start()
        gc_tuning.tune_garbage_collector()
        worker.start()
        leaving.wait()
        worker.close()
        service_proxy.listen()


def _worker(settings: Settings, store: Store, line: Channel, stack: ExitStack) -> tuple[Worker, ServiceProxy]:
    live = RunViewCache(idle_after_seconds=settings.idle_after_seconds)
    # A change of the rules concerns all that is shown, also what is at rest.
    ViewSync(store.run_snapshots, live, idle_after_seconds=settings.idle_after_seconds).fill(now=time.time())
    rules, service_proxy = active_rules_of(settings), ServiceProxy(line, live)
    worker = Worker(
        store.run_log,
        outcomes=service_proxy,
        watch_config=watch_config_of(settings, rules=rules),
        display=service_proxy,
        observer=service_proxy,
        listen=service_proxy.listen,
        clock=time.time,
    )
    rules.watched_by(changed=lambda: reevaluate_runs(worker, live), failed=lambda: None)
    rules.start()
    stack.callback(rules.close)
    return worker, service_proxy


def _hear(line: Channel, store: Store, worker: Worker, service_proxy: ServiceProxy, leaving: Event) -> None:
    """Take in what the service says. Without a service nothing can be written: the process ends at once."""
    while True:
        try:
            message = line.receive()
        except (EOFError, OSError):
            os._exit(1)
        if isinstance(message, CommitResult):
            service_proxy.answered(message)
        elif isinstance(message, RunsChanged):
            store.run_log.revised(message.revisions)
            worker.wake(message.revisions)
        elif isinstance(message, Shutdown):
            leaving.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))

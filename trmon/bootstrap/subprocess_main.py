"""Entry point of the worker process: `python -m trmon.bootstrap.subprocess_main DESCRIPTOR`."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from threading import Event, Thread

from trmon.bootstrap import gc_tuning
from trmon.bootstrap.background_services import reevaluate_runs, summary_poller_of, watch_config_of
from trmon.config import logs
from trmon.config.active_rules import active_rules_of
from trmon.config.settings import Settings
from trmon.hosts.fleet.view_sync import ViewSync
from trmon.hosts.subprocess.channel import Channel, CommitResult, RunsChanged, Shutdown
from trmon.hosts.subprocess.service_proxy import ServiceProxy
from trmon.runner.ownership import SoleOwner
from trmon.runner.worker import Worker
from trmon.store import ProcessRole, Store
from trmon.views.run_view_cache import RunViewCache

NICENESS = 5
"""Where cores are scarce the service goes first: trainers wait for acknowledgements, not for signals."""


def main(descriptor: int) -> None:
    """Evaluate the runs of the service at the other end of the channel, until it sends Shutdown."""
    # A terminal or a process manager signals the whole group; only the service may end this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    channel = Channel(descriptor)
    settings: Settings = channel.receive()
    logs.configure_logging(settings)
    with ExitStack() as stack:
        store = Store.open(settings.store_url, role=ProcessRole.READER, lake_url=settings.lake_url)
        stack.callback(store.close)
        shutdown = Event()
        worker, service_proxy = _build_worker(settings, store, channel, stack)
        receiver = (channel, store, worker, service_proxy, shutdown)
        Thread(target=_receive_messages, args=receiver, name="trmon-channel", daemon=True).start()
        gc_tuning.tune_garbage_collector()
        worker.start()
        summary_poller = summary_poller_of(store, service_proxy, ownership=SoleOwner())
        summary_poller.start()
        shutdown.wait()
        summary_poller.close()
        worker.close()
        service_proxy.send_round_result()


def _build_worker(settings: Settings, store: Store, channel: Channel, stack: ExitStack) -> tuple[Worker, ServiceProxy]:
    idle_after_seconds = settings.idle_after_seconds
    view_cache = RunViewCache(idle_after_seconds=idle_after_seconds)
    # A change of the rules concerns every run in the cache, idle ones included.
    ViewSync(store.run_snapshots, view_cache, idle_after_seconds=idle_after_seconds).load_active(now=time.time())
    rules, service_proxy = active_rules_of(settings), ServiceProxy(channel, view_cache)
    worker = Worker(
        store.run_log,
        writer=service_proxy,
        watch_config=watch_config_of(settings, rules=rules),
        views=service_proxy,
        observer=service_proxy,
        after_round=service_proxy.send_round_result,
        clock=time.time,
        monotonic=time.monotonic,
    )
    rules.set_callbacks(on_change=lambda: reevaluate_runs(worker, view_cache), on_failure=lambda: None)
    rules.start()
    stack.callback(rules.close)
    return worker, service_proxy


def _receive_messages(
    channel: Channel, store: Store, worker: Worker, service_proxy: ServiceProxy, shutdown: Event
) -> None:
    """Handle the service's messages. If the service is gone nothing can be committed: the process exits at once."""
    while True:
        try:
            message = channel.receive()
        except (EOFError, OSError):
            os._exit(1)
        if isinstance(message, CommitResult):
            service_proxy.complete(message)
        elif isinstance(message, RunsChanged):
            store.run_log.set_revisions(message.revisions)
            worker.wake(message.revisions)
        elif isinstance(message, Shutdown):
            shutdown.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The processes that evaluate runs: `trmon worker` over PostgreSQL, and the worker process of an embedded service.

The second one is `python -m trmon.bootstrap.workers DESCRIPTOR`.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, repeat
from threading import Event, Thread

import structlog

from trmon.bootstrap import background_services
from trmon.bootstrap.background_services import (
    BackgroundServices,
    build_background_services,
    connect_peers,
    reevaluate_runs,
    rules_thread,
    watch_config_of,
)
from trmon.config import logs
from trmon.config.rules import active_rules_of
from trmon.config.settings import Settings
from trmon.domain.errors import DatabaseAway, NotReady
from trmon.domain.pipeline.publish import EDIT
from trmon.fleet.changes import EventFollower, PeriodicThread, ReportPoller
from trmon.fleet.heartbeats import Heartbeat
from trmon.fleet.lease_renewal import LeaseManager
from trmon.fleet.views import RunViewCache, ViewSync
from trmon.metrics.counters import Counters
from trmon.store import ProcessRole, Store
from trmon.store.database.engines import is_shared
from trmon.store.redis import CommitNotice
from trmon.store.repositories.events import StoredEvent
from trmon.worker.channel import Channel, CommitResult, RunsChanged, ServiceProxy, Shutdown
from trmon.worker.thread import Worker

RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)
"""The waits for a database that is away at the start; the last one is repeated."""
log = structlog.get_logger(__name__)
NICENESS = 5
"""Where cores are scarce the service goes first: trainers wait for acknowledgements, not for signals."""


@contextmanager
def running_worker(
    settings: Settings, *, counters: Counters, ending: Event, send_beat: Callable[[], object] = lambda: None
) -> Iterator[BackgroundServices]:
    """Run a worker until the block ends; then write its checkpoints and release its leases. Errors: NotReady.

    Args: ending: ends the wait for a database that is away; send_beat: tells the supervisor that the worker makes
    progress.
    """
    with ExitStack() as stack:
        if not is_shared(settings.store_url):
            raise NotReady("`trmon serve` evaluates the runs of a SQLite file itself; workers need PostgreSQL")
        store = _opened_store(settings, ending, send_beat)
        stack.callback(store.close)
        rules, view_cache = active_rules_of(settings), RunViewCache(idle_after_seconds=settings.idle_after_seconds)
        heartbeat = Heartbeat(send_beat)
        leases = store.leases(holder_name(), lease_seconds=settings.lease_seconds)
        lease_manager = LeaseManager(leases, heartbeat)
        services = build_background_services(
            settings,
            store,
            rules=rules,
            view_cache=view_cache,
            counters=counters,
            lease_manager=lease_manager,
            heartbeat=heartbeat,
        )
        counters.add_gauge("trmon_worker_beat_age_seconds", lambda: heartbeat.age_seconds)
        rules.on_change = lambda: reevaluate_runs(services.worker, view_cache)
        rules.on_failure = counters.rules_reload_failures.inc
        store.writer.on_commit(lambda commit: services.dispatcher.wake() if commit.receivers else None)
        services.start(stack)
        report_poller, event_poller = _pollers(store, services)
        peers = connect_peers(
            settings,
            store,
            counters=counters,
            on_notice=_notice_handler(services, report_poller=report_poller, event_poller=event_poller),
            pollers=[report_poller, event_poller],
        )
        for part in (rules_thread(rules), report_poller, event_poller, peers):
            if part is not None:
                part.start()
                stack.callback(part.close)
        yield services


def _opened_store(settings: Settings, ending: Event, send_beat: Callable[[], object]) -> Store:
    """Return the migrated store once its server answers. Errors: NotReady; DatabaseAway if the worker is to end."""
    waits = chain(RETRY_SECONDS, repeat(RETRY_SECONDS[-1]))
    while True:
        try:
            store = Store.open(settings.store_url, lake_url=settings.lake_url)
            try:
                store.migrate()
            except BaseException:
                store.close()
                raise
            return store
        except DatabaseAway as error:
            retry_seconds = next(waits)
            send_beat()
            log.warning("database_away", error=str(error), retry_seconds=retry_seconds)
            if ending.wait(retry_seconds):
                raise


def holder_name() -> str:
    """Return a name for this process that no other process has had."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _pollers(store: Store, services: BackgroundServices) -> tuple[PeriodicThread, PeriodicThread]:
    """Return the pollers for messages and for edits that other processes have stored."""
    report_poller = ReportPoller(store.new_messages, clock=time.monotonic)

    def on_events(events: Sequence[StoredEvent]) -> None:
        edited = {stored.run_id for stored in events if stored.event.kind == EDIT}
        store.run_log.count_edits(edited)
        services.worker.wake(edited)

    follower = EventFollower(store.events, on_events=on_events)
    return PeriodicThread("reports", lambda: services.worker.wake(report_poller.poll())), PeriodicThread(
        "events", follower.poll
    )


def _notice_handler(
    services: BackgroundServices, *, report_poller: PeriodicThread, event_poller: PeriodicThread
) -> Callable[[CommitNotice], None]:
    """Return a function that reads at once what the pollers would find within a second."""

    def on_notice(notice: CommitNotice) -> None:
        if notice.touched:
            services.worker.wake(notice.touched)
        if notice.has_deliveries:
            services.dispatcher.wake()
        if notice.edited or notice.missed:
            event_poller.wake()
        if notice.missed:
            report_poller.wake()

    return on_notice


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
        background_services.tune_memory()
        worker.start()
        shutdown.wait()
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
        watch_config=watch_config_of(settings, rules=rules, heartbeat=service_proxy.heartbeat),
        views=service_proxy,
        observer=service_proxy,
        after_round=service_proxy.send_round_result,
        monotonic=time.monotonic,
    )
    rules.on_change = lambda: reevaluate_runs(worker, view_cache)
    if (thread := rules_thread(rules)) is not None:
        thread.start()
        stack.callback(thread.close)
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

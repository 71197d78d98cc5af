"""`trmon worker`: a process without an API that evaluates its share of the runs in a shared database."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from trmon.background.poller import Poller
from trmon.bootstrap.background_services import BackgroundServices, build_background_services, reevaluate_runs
from trmon.config.active_rules import active_rules_of
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.state.run_update import EDIT
from trmon.hosts.fleet.event_follower import EventFollower
from trmon.hosts.fleet.lease_manager import LeaseManager
from trmon.hosts.fleet.peer_notifier import connect_peers
from trmon.hosts.fleet.report_poller import ReportPoller
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.redis.commit_notice import CommitNotice
from trmon.store.repositories.events import StoredEvent
from trmon.views.run_view_cache import RunViewCache


@contextmanager
def running_worker(settings: Settings, *, counters: Counters) -> Iterator[BackgroundServices]:
    """Run a worker until the block ends; then write its checkpoints and release its leases. Errors: NotReady."""
    with ExitStack() as stack:
        store = Store.open(settings.store_url, lake_url=settings.lake_url)
        stack.callback(store.close)
        if not store.is_shared:
            raise NotReady("`trmon serve` evaluates the runs of a SQLite file itself; workers need PostgreSQL")
        store.migrate()
        rules, view_cache = active_rules_of(settings), RunViewCache(idle_after_seconds=settings.idle_after_seconds)
        lease_manager = LeaseManager(store.leases(holder_name(), lease_seconds=settings.lease_seconds))
        services = build_background_services(
            settings, store, rules=rules, view_cache=view_cache, counters=counters, lease_manager=lease_manager
        )
        rules.set_callbacks(
            on_change=lambda: reevaluate_runs(services.worker, view_cache),
            on_failure=counters.rules_reload_failures.inc,
        )
        store.writer.on_commit(lambda commit: services.dispatcher.wake() if commit.receivers else None)
        rules.start()
        stack.callback(rules.close)
        services.start(stack)
        report_poller, event_poller = _pollers(store, services)
        peers = connect_peers(
            settings,
            store,
            counters=counters,
            on_notice=_notice_handler(services, report_poller=report_poller, event_poller=event_poller),
            pollers=[report_poller, event_poller],
        )
        for part in (report_poller, event_poller, peers):
            if part is not None:
                part.start()
                stack.callback(part.close)
        yield services


def holder_name() -> str:
    """Return a name for this process that no other process has had."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _pollers(store: Store, services: BackgroundServices) -> tuple[Poller, Poller]:
    """Return the pollers for messages and for edits that other processes have stored."""
    report_poller = ReportPoller(store.new_messages, clock=time.monotonic)

    def on_events(events: Sequence[StoredEvent]) -> None:
        edited = {stored.run_id for stored in events if stored.event.kind == EDIT}
        store.run_log.count_edits(edited)
        services.worker.wake(edited)

    follower = EventFollower(store.events, on_events=on_events)
    return Poller("reports", lambda: services.worker.wake(report_poller.poll())), Poller("events", follower.poll)


def _notice_handler(
    services: BackgroundServices, *, report_poller: Poller, event_poller: Poller
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

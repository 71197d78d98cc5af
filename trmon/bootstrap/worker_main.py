"""A watch: a process without a door, which watches its share of the runs of a shared database."""

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
from trmon.hosts.fleet.peer_notifier import peer_notifier_of
from trmon.hosts.fleet.report_poller import ReportPoller
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.redis.commit_notice import CommitNotice
from trmon.store.repositories.events import StoredEvent
from trmon.views.run_view_cache import RunViewCache


@contextmanager
def running_worker(settings: Settings, *, counters: Counters) -> Iterator[BackgroundServices]:
    """Watch until the block ends; then every run is at rest, and its lease free. Errors: NotReady."""
    with ExitStack() as stack:
        store = Store.open(settings.store_url)
        stack.callback(store.close)
        if not store.is_shared:
            raise NotReady("`trmon serve` watches the runs of a SQLite file itself; workers need PostgreSQL")
        store.migrate()
        rules, live = active_rules_of(settings), RunViewCache(idle_after_seconds=settings.idle_after_seconds)
        lease_manager = LeaseManager(store.leases(holder_name(), lease_seconds=settings.lease_seconds))
        services = build_background_services(
            settings, store, rules=rules, live=live, counters=counters, lease_manager=lease_manager
        )
        rules.watched_by(
            changed=lambda: reevaluate_runs(services.worker, live),
            failed=counters.rules_reload_failures.inc,
        )
        store.writer.on_commit(lambda commit: services.notifier.wake() if commit.addressed else None)
        rules.start()
        stack.callback(rules.close)
        services.start(stack)
        report_poller, tail = _pollers(store, services)
        peer_notifier = peer_notifier_of(
            settings,
            store,
            counters=counters,
            heard=_hearer(services, report_poller=report_poller, tail=tail),
            pollers=[report_poller, tail],
        )
        for part in (report_poller, tail, peer_notifier):
            if part is not None:
                part.start()
                stack.callback(part.close)
        yield services


def holder_name() -> str:
    """Return a name for this process that none ever had."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _pollers(store: Store, services: BackgroundServices) -> tuple[Poller, Poller]:
    """Return who looks for messages and for edits that came through other processes."""
    report_poller = ReportPoller(store.arrivals, clock=time.monotonic)

    def heard(events: Sequence[StoredEvent]) -> None:
        edited = {stored.run_id for stored in events if stored.event.kind == EDIT}
        store.run_log.edited(edited)
        services.worker.wake(edited)

    tail = EventFollower(store.events, heard=heard)
    return Poller("lookout", lambda: services.worker.wake(report_poller.look())), Poller("tail", tail.look)


def _hearer(services: BackgroundServices, *, report_poller: Poller, tail: Poller) -> Callable[[CommitNotice], None]:
    """Return what becomes of news: what the pollers would find within a second is looked at now."""

    def heard(news: CommitNotice) -> None:
        if news.touched:
            services.worker.wake(news.touched)
        if news.addressed:
            services.notifier.wake()
        if news.edited or news.missed:
            tail.wake()
        if news.missed:
            report_poller.wake()

    return heard

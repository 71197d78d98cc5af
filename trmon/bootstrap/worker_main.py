"""A watch: a process without a door, which watches its share of the runs of a shared database."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from trmon.background.poller import Poller
from trmon.bootstrap.background_services import Crew, crew_of, judge_anew
from trmon.config.active_rules import rules_of
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.state.run_update import EDIT
from trmon.hosts.fleet.event_follower import Tail
from trmon.hosts.fleet.lease_manager import Tenancy
from trmon.hosts.fleet.peer_notifier import neighbours_of
from trmon.hosts.fleet.report_poller import Lookout
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.redis.commit_notice import News
from trmon.store.repositories.events import StoredEvent
from trmon.views.run_view_cache import Live


@contextmanager
def watching(settings: Settings, *, counters: Counters) -> Iterator[Crew]:
    """Watch until the block ends; then every run is at rest, and its lease free. Errors: NotReady."""
    with ExitStack() as stack:
        store = Store.open(settings.store_url)
        stack.callback(store.close)
        if not store.is_shared:
            raise NotReady("`trmon serve` watches the runs of a SQLite file itself; workers need PostgreSQL")
        store.migrate()
        rules, live = rules_of(settings), Live(idle_after_seconds=settings.idle_after_seconds)
        tenancy = Tenancy(store.leases(holder_name(), lease_seconds=settings.lease_seconds))
        crew = crew_of(settings, store, rules=rules, live=live, counters=counters, tenancy=tenancy)
        rules.watched_by(
            changed=lambda: judge_anew(crew.worker, live),
            failed=counters.rules_reload_failures.inc,
        )
        store.writer.on_commit(lambda commit: crew.notifier.wake() if commit.addressed else None)
        rules.start()
        stack.callback(rules.close)
        crew.start(stack)
        lookout, tail = _pollers(store, crew)
        neighbours = neighbours_of(
            settings, store, counters=counters, heard=_hearer(crew, lookout=lookout, tail=tail), pollers=[lookout, tail]
        )
        for part in (lookout, tail, neighbours):
            if part is not None:
                part.start()
                stack.callback(part.close)
        yield crew


def holder_name() -> str:
    """Return a name for this process that none ever had."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _pollers(store: Store, crew: Crew) -> tuple[Poller, Poller]:
    """Return who looks for messages and for edits that came through other processes."""
    lookout = Lookout(store.arrivals, clock=time.monotonic)

    def heard(events: Sequence[StoredEvent]) -> None:
        edited = {stored.run_id for stored in events if stored.event.kind == EDIT}
        store.runlog.edited(edited)
        crew.worker.wake(edited)

    tail = Tail(store.events, heard=heard)
    return Poller("lookout", lambda: crew.worker.wake(lookout.look())), Poller("tail", tail.look)


def _hearer(crew: Crew, *, lookout: Poller, tail: Poller) -> Callable[[News], None]:
    """Return what becomes of news: what the pollers would find within a second is looked at now."""

    def heard(news: News) -> None:
        if news.touched:
            crew.worker.wake(news.touched)
        if news.addressed:
            crew.notifier.wake()
        if news.edited or news.missed:
            tail.wake()
        if news.missed:
            lookout.wake()

    return heard

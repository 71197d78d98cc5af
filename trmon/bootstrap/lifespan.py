"""Opens the components of `trmon serve` in order, and closes them in reverse order."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TypeAlias

from trmon.api.http.auth import Authenticator, check_bind
from trmon.api.http.components import Components, Readiness
from trmon.api.http.rate_limit import RateLimit, limit_sync
from trmon.bootstrap.background_services import (
    BackgroundServices,
    build_background_services,
    connect_peers,
    reevaluate_runs,
    rules_thread,
)
from trmon.config.rules import active_rules_of
from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.domain.pipeline.run_update import EDIT
from trmon.fleet.changes import CommitSignal, EventFollower, PeriodicThread
from trmon.fleet.judging import POLL_SECONDS as JUDGING_POLL_SECONDS
from trmon.fleet.judging import JudgingWatch
from trmon.fleet.verdicts import RunVerdicts
from trmon.fleet.views import RunViewCache, ViewSync
from trmon.ingest.acknowledgement import CurrentPolicies
from trmon.ingest.quotas import POLL_SECONDS as QUOTA_POLL_SECONDS
from trmon.ingest.quotas import QuotaGate
from trmon.ingest.service import IngestService
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.notify.registry import DeliveryCheck, pictures_of
from trmon.store import ProcessRole, Store
from trmon.store.database.sqlite import exclusive_use, explaining_damage
from trmon.store.redis import SharedBuckets
from trmon.store.repositories.events import StoredEvent
from trmon.store.writing.group_commit import CommittedGroup

MAX_WHAT_IFS = 4
"""How many run at once."""
RECEIVER_CHECK_SECONDS = 60.0
VIEW_PAUSE_SECONDS = 0.5
"""Shortest time between two reads of the views that other processes store: one read covers several changes."""


Assembled: TypeAlias = tuple[Components, BackgroundServices | None]
"""The state that routes share, and the background services; None if other processes evaluate the runs."""


@asynccontextmanager
async def running_service(settings: Settings, *, limit: RateLimit) -> AsyncIterator[Assembled]:
    """Open the components in order and close them in reverse order. Errors: NotReady.

    Args: limit: the rate limit of requests; with Redis, replicas share it.
    """
    async with AsyncExitStack() as stack:
        file_lock = ExitStack()
        stack.push_async_callback(asyncio.to_thread, file_lock.close)
        components, services = _assemble(settings, await asyncio.to_thread(_open_store, settings, file_lock))
        stack.push_async_callback(asyncio.to_thread, components.store.close)
        threads = ExitStack()
        stack.push_async_callback(asyncio.to_thread, threads.close)
        await asyncio.to_thread(_start, components, services, limit=limit, stack=threads)
        stack.callback(components.commit_signal.close)
        stack.callback(components.readiness.close)
        yield components, services


def _open_store(settings: Settings, file_lock: ExitStack) -> Store:
    """Return the store; a SQLite file is locked for this service until the lock's stack closes."""
    role = ProcessRole.WRITER if settings.worker == "process" else ProcessRole.ALONE
    file_lock.enter_context(exclusive_use(settings.store_url))
    store = Store.open(settings.store_url, role=role, lake_url=settings.lake_url)
    try:
        with explaining_damage(settings.store_url):
            store.migrate()
            check_bind(settings, store.tokens)
    except NotReady:
        store.close()
        raise
    return store


def _assemble(settings: Settings, store: Store) -> Assembled:
    """Build the components; over a shared database other processes evaluate the runs."""
    counters, rules = Counters(), active_rules_of(settings)
    view_cache = RunViewCache(idle_after_seconds=settings.idle_after_seconds)
    policies = CurrentPolicies(store.policies, store.runs)
    quota_gate = QuotaGate(store.quotas, counters=counters, new_runs_per_hour=settings.new_runs_per_hour)
    services = None
    if not store.is_shared:
        services = build_background_services(settings, store, rules=rules, view_cache=view_cache, counters=counters)

    def check() -> None:
        store.check()
        if services is not None:
            services.check()

    components = Components(
        settings=settings,
        store=store,
        view_cache=view_cache,
        rules=rules,
        authenticator=Authenticator(store.tokens, is_exposed=settings.is_exposed),
        ingest_service=IngestService(
            store, policies=policies, view_cache=view_cache, counters=counters, quota_gate=quota_gate
        ),
        quota_gate=quota_gate,
        policies=policies,
        commit_signal=CommitSignal(asyncio.get_running_loop()),
        counters=counters,
        exposition=Exposition(
            rules=rules,
            extra_signals=settings.metrics_signals,
            max_runs=settings.metrics_max_runs,
            max_scalars=settings.metrics_max_scalars,
        ),
        verdicts=RunVerdicts(store, health_rules=rules.health_rules),
        readiness=Readiness(check),
        delivery_check=DeliveryCheck(settings),
        pictures=pictures_of(settings, store),
        judging=JudgingWatch(store.judging, worker=None if services is None else services.worker),
        what_ifs=asyncio.Semaphore(MAX_WHAT_IFS),
    )
    return components, services


def _start(components: Components, services: BackgroundServices | None, *, limit: RateLimit, stack: ExitStack) -> None:
    """Load the stored views, then start everything that has its own thread."""
    settings, store, counters = components.settings, components.store, components.counters
    view_sync = ViewSync(store.run_snapshots, components.view_cache, idle_after_seconds=settings.idle_after_seconds)
    view_poller = event_poller = peers = rate_limit_sync = None
    if services is None:
        view_poller = PeriodicThread("views", view_sync.poll, pause_seconds=VIEW_PAUSE_SECONDS)
        event_poller = PeriodicThread("events", _event_follower(components, view_sync, view_poller).poll)
        wake = event_poller.wake
        peers = connect_peers(settings, store, counters=counters, on_notice=lambda _: wake(), pollers=[event_poller])
    if settings.redis_url is not None:
        url = settings.redis_url.get_secret_value()
        buckets = SharedBuckets(url, per_second=settings.rate_per_second, burst=settings.rate_burst)
        stack.callback(buckets.close)
        rate_limit_sync = limit_sync(limit, buckets, on_failure=counters.redis_failures.labels("limits").inc)
    view_sync.load_active(now=time.time())
    _connect(components, services, event_poller=event_poller)
    components.quota_gate.poll()
    quotas = PeriodicThread("quotas", components.quota_gate.poll, every_seconds=QUOTA_POLL_SECONDS)
    stack.callback(components.delivery_check.close)
    receivers = PeriodicThread("receivers", components.delivery_check.check, every_seconds=RECEIVER_CHECK_SECONDS)
    judging = PeriodicThread("judging", components.judging.poll, every_seconds=JUDGING_POLL_SECONDS)
    pollers = (view_poller, event_poller, peers, rate_limit_sync)
    for part in (rules_thread(components.rules), quotas, receivers, judging, *pollers):
        if part is not None:
            part.start()
            stack.callback(part.close)
    if services is not None:
        services.start(stack)


def _event_follower(components: Components, view_sync: ViewSync, view_poller: PeriodicThread) -> EventFollower:
    def on_events(events: Sequence[StoredEvent]) -> None:
        """Reload the views of changed runs; after an edit or a new policy, also the policy that trainers get."""
        for stored in events:
            if stored.event.kind in ("policy", EDIT):
                components.policies.invalidate(stored.run_id)
        view_sync.mark_changed(stored.run_id for stored in events)
        view_poller.wake()
        components.commit_signal.wake()

    return EventFollower(components.store.events, on_events=on_events)


def _connect(
    components: Components, services: BackgroundServices | None, *, event_poller: PeriodicThread | None
) -> None:
    """Subscribe to commits and rule changes, and connect the service's gauges to their sources."""
    counters, store = components.counters, components.store

    def on_commit(commit: CommittedGroup) -> None:
        counters.commit_seconds.observe(commit.seconds)
        for run_id in commit.edited:
            components.policies.invalidate(run_id)
        if services is not None:
            services.worker.wake(commit.touched)
            if commit.receivers:
                services.dispatcher.wake()
            components.commit_signal.wake()
        elif event_poller is not None and commit.edited:
            event_poller.wake()

    components.rules.on_failure = counters.rules_reload_failures.inc
    if services is not None:
        worker = services.worker
        components.rules.on_change = lambda: reevaluate_runs(worker, components.view_cache)
    counters.set_info(version=version("trmon"), page_url=(components.settings.public_url or "").rstrip("/"))
    store.writer.on_commit(on_commit)
    counters.add_gauge("trmon_queue_depth", lambda: store.writer.depth)
    judging = components.judging
    counters.add_gauge("trmon_worker_beat_age_seconds", lambda: judging.delay().beat_age_seconds)
    counters.add_gauge("trmon_oldest_unprocessed_seconds", lambda: judging.delay().oldest_unprocessed_seconds)
    if (folder := store.folder) is not None:
        counters.add_gauge("trmon_disk_free_bytes", lambda: shutil.disk_usage(folder).free)

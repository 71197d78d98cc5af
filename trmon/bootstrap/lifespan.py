"""The life of the service: its components, opened in order and closed in the opposite order."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

from trmon.api.http.auth import Authenticator, check_bind
from trmon.api.http.components import Components
from trmon.api.http.rate_limit import RateLimit
from trmon.api.http.rate_limit_sync import RateLimitSync
from trmon.api.http.readiness import Readiness
from trmon.background.poller import Poller
from trmon.bootstrap.background_services import BackgroundServices, build_background_services, reevaluate_runs
from trmon.config.active_rules import ActiveRules, active_rules_of
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.state.run_update import EDIT
from trmon.hosts.fleet.event_follower import EventFollower
from trmon.hosts.fleet.peer_notifier import PeerNotifier, peer_notifier_of
from trmon.hosts.fleet.view_sync import ViewSync
from trmon.ingest.ingest_service import IngestService
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.store import ProcessRole, Store
from trmon.store.maintenance.exclusive_lock import exclusive_use
from trmon.store.redis.shared_rate_limits import SharedBuckets
from trmon.store.repositories.events import StoredEvent
from trmon.store.writing.group_commit import CommittedGroup
from trmon.views.commit_signal import CommitSignal
from trmon.views.current_policies import CurrentPolicies
from trmon.views.run_summaries import RunSummaries
from trmon.views.run_view_cache import RunViewCache

MAX_WHAT_IFS = 4
"""How many are answered at once."""
MIRROR_PAUSE_SECONDS = 0.5
"""Shortest rest between two looks at runs that others watch: what changes meanwhile is read once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """What routes share, and the background services; None where other processes watch the runs."""

    components: Components
    services: BackgroundServices | None


@asynccontextmanager
async def running_service(settings: Settings, *, limit: RateLimit) -> AsyncIterator[RunningService]:
    """Open the components in order and close them in the opposite one. Errors: NotReady.

    Args: limit: the rate limit of requests, which replicas share where there is a Redis.
    """
    async with AsyncExitStack() as stack:
        held = ExitStack()
        stack.push_async_callback(asyncio.to_thread, held.close)
        running = _assemble(settings, await asyncio.to_thread(_opened, settings, held))
        components = running.components
        stack.push_async_callback(asyncio.to_thread, components.store.close)
        behind = ExitStack()
        stack.push_async_callback(asyncio.to_thread, behind.close)
        await asyncio.to_thread(_start, running, limit, behind)
        stack.callback(components.commit_signal.close)
        stack.callback(components.readiness.close)
        yield running


def _opened(settings: Settings, held: ExitStack) -> Store:
    """Return the store, whose SQLite file is this service's alone for as long as it is held."""
    role = ProcessRole.WRITER if settings.worker == "process" else ProcessRole.ALONE
    held.enter_context(exclusive_use(settings.store_url))
    store = Store.open(settings.store_url, role=role)
    try:
        store.migrate()
        check_bind(settings, store.tokens)
    except NotReady:
        store.close()
        raise
    return store


def _assemble(settings: Settings, store: Store) -> RunningService:
    """Over a shared database the runs are watched by other processes."""
    counters, rules = Counters(), active_rules_of(settings)
    live = RunViewCache(idle_after_seconds=settings.idle_after_seconds)
    policies = CurrentPolicies(store.policies, store.runs)
    services = None
    if not store.is_shared:
        services = build_background_services(settings, store, rules=rules, live=live, counters=counters)
    components = Components(
        settings=settings,
        store=store,
        view_cache=live,
        rules=rules,
        authenticator=Authenticator(store.tokens, is_loopback=settings.is_loopback),
        ingest_service=IngestService(store, policies=policies, view_cache=live, counters=counters),
        policies=policies,
        commit_signal=CommitSignal(asyncio.get_running_loop()),
        counters=counters,
        exposition=_exposition(settings, rules),
        summaries=RunSummaries(store),
        readiness=_readiness(store, services),
        what_ifs=asyncio.Semaphore(MAX_WHAT_IFS),
    )
    return RunningService(components=components, services=services)


def _readiness(store: Store, services: BackgroundServices | None) -> Readiness:
    def check() -> None:
        store.check()
        if services is not None:
            services.check()

    return Readiness(check)


def _start(running: RunningService, limit: RateLimit, stack: ExitStack) -> None:
    """Show what was written before, then start everything that has a thread of its own."""
    components, services = running.components, running.services
    idle_after_seconds = components.settings.idle_after_seconds
    mirror = ViewSync(components.store.run_snapshots, components.view_cache, idle_after_seconds=idle_after_seconds)
    shown = tail = None
    if services is None:
        shown = Poller("mirror", mirror.look, pause_seconds=MIRROR_PAUSE_SECONDS)
        tail = Poller("tail", _tail(components, mirror, shown).look)
    mirror.fill(now=time.time())
    _connect(running, tail)
    for part in (components.rules, shown, tail, _peer_notifier(components, tail), _sharing(components, limit)):
        if part is not None:
            part.start()
            stack.callback(part.close)
    if services is not None:
        services.start(stack)


def _tail(components: Components, mirror: ViewSync, shown: Poller) -> EventFollower:
    def heard(events: Sequence[StoredEvent]) -> None:
        """Whatever happens to a run changes what is shown of it; these kinds, also what its trainer is told."""
        for stored in events:
            if stored.event.kind in ("policy", EDIT):
                components.policies.forget(stored.run_id)
        mirror.note(stored.run_id for stored in events)
        shown.wake()
        components.commit_signal.wake()

    return EventFollower(components.store.events, heard=heard)


def _peer_notifier(components: Components, tail: Poller | None) -> PeerNotifier | None:
    """Return who says that there is something to look at, before a second has passed."""
    if tail is None:
        return None
    return peer_notifier_of(
        components.settings, components.store, counters=components.counters, heard=lambda _: tail.wake(), pollers=[tail]
    )


def _sharing(components: Components, limit: RateLimit) -> RateLimitSync | None:
    settings, failures = components.settings, components.counters.redis_failures
    if settings.redis_url is None:
        return None
    url = settings.redis_url.get_secret_value()
    buckets = SharedBuckets(url, per_second=settings.rate_per_second, burst=settings.rate_burst)
    return RateLimitSync(limit, buckets, on_failure=failures.labels("limits").inc)


def _exposition(settings: Settings, rules: ActiveRules) -> Exposition:
    return Exposition(
        rules=rules,
        extra_signals=settings.metrics_signals,
        max_runs=settings.metrics_max_runs,
        max_scalars=settings.metrics_max_scalars,
    )


def _connect(running: RunningService, tail: Poller | None) -> None:
    """Let every commit wake whoever reads what is new, and the service's gauges read their components."""
    components, services = running.components, running.services
    counters, store = components.counters, components.store

    def committed(commit: CommittedGroup) -> None:
        counters.commit_seconds.observe(commit.seconds)
        for run_id in commit.edited:
            components.policies.forget(run_id)
        if services is not None:
            services.worker.wake(commit.touched)
            if commit.addressed:
                services.notifier.wake()
            components.commit_signal.wake()
        elif tail is not None and commit.edited:
            tail.wake()

    def rules_changed() -> None:
        if services is not None:
            reevaluate_runs(services.worker, components.view_cache)

    components.rules.watched_by(changed=rules_changed, failed=counters.rules_reload_failures.inc)
    counters.about(version=version("trmon"), page_url=(components.settings.public_url or "").rstrip("/"))
    store.writer.on_commit(committed)
    counters.gauge("trmon_queue_depth", lambda: store.writer.depth)
    if (folder := store.folder) is not None:
        counters.gauge("trmon_disk_free_bytes", lambda: shutil.disk_usage(folder).free)

"""Construction: the parts of the service, made from its settings, opened in order and closed in the opposite one."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from importlib.metadata import version

from trmon.api.http.auth import Door, check_bind
from trmon.api.http.components import Parts
from trmon.api.http.rate_limit import RateLimit
from trmon.api.http.rate_limit_sync import Sharing
from trmon.api.http.readiness import Readiness
from trmon.background.poller import Poller
from trmon.bootstrap.background_services import Crew, crew_of, judge_anew
from trmon.config.active_rules import RulesInForce, rules_of
from trmon.config.settings import Settings
from trmon.domain.model.errors import NotReady
from trmon.domain.state.run_update import EDIT
from trmon.hosts.fleet.event_follower import Tail
from trmon.hosts.fleet.peer_notifier import Neighbours, neighbours_of
from trmon.hosts.fleet.view_sync import Mirror
from trmon.ingest.ingest_service import Reception
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.store import Role, Store
from trmon.store.maintenance.exclusive_lock import sole_use
from trmon.store.redis.shared_rate_limits import SharedBuckets
from trmon.store.repositories.events import StoredEvent
from trmon.store.writing.group_commit import Commit
from trmon.views.commit_signal import Wakeups
from trmon.views.current_policies import CurrentPolicies
from trmon.views.run_summaries import Glances
from trmon.views.run_view_cache import Live

MAX_WHAT_IFS = 4
"""How many are answered at once."""
MIRROR_PAUSE_SECONDS = 0.5
"""Shortest rest between two looks at runs that others watch: what changes meanwhile is read once."""


@asynccontextmanager
async def running(settings: Settings, *, limit: RateLimit) -> AsyncIterator[Parts]:
    """Open the parts in order and close them in the opposite one. Errors: NotReady.

    Args: limit: the rate limit of requests, which replicas share where there is a Redis.
    """
    async with AsyncExitStack() as stack:
        held = ExitStack()
        stack.push_async_callback(asyncio.to_thread, held.close)
        parts = _assemble(settings, await asyncio.to_thread(_opened, settings, held))
        stack.push_async_callback(asyncio.to_thread, parts.store.close)
        behind = ExitStack()
        stack.push_async_callback(asyncio.to_thread, behind.close)
        await asyncio.to_thread(_start, parts, limit, behind)
        stack.callback(parts.wakeups.close)
        stack.callback(parts.readiness.close)
        yield parts


def _opened(settings: Settings, held: ExitStack) -> Store:
    """Return the store, whose SQLite file is this service's alone for as long as it is held."""
    role = Role.WRITER if settings.worker == "process" else Role.ALONE
    held.enter_context(sole_use(settings.store_url))
    store = Store.open(settings.store_url, role=role)
    try:
        store.migrate()
        check_bind(settings, store.tokens)
    except NotReady:
        store.close()
        raise
    return store


def _assemble(settings: Settings, store: Store) -> Parts:
    """Over a shared database the runs are watched by other processes."""
    counters, live, rules = Counters(), Live(idle_after_seconds=settings.idle_after_seconds), rules_of(settings)
    policies = CurrentPolicies(store.policies, store.runs)
    crew = None if store.is_shared else crew_of(settings, store, rules=rules, live=live, counters=counters)
    return Parts(
        settings=settings,
        store=store,
        crew=crew,
        live=live,
        rules=rules,
        door=Door(store.tokens, is_loopback=settings.is_loopback),
        reception=Reception(store, policies=policies, live=live, counters=counters),
        policies=policies,
        wakeups=Wakeups(asyncio.get_running_loop()),
        counters=counters,
        exposition=_exposition(settings, rules),
        glances=Glances(store),
        readiness=_readiness(store, crew),
        what_ifs=asyncio.Semaphore(MAX_WHAT_IFS),
    )


def _readiness(store: Store, crew: Crew | None) -> Readiness:
    def check() -> None:
        store.check()
        if crew is not None:
            crew.check()

    return Readiness(check)


def _start(parts: Parts, limit: RateLimit, stack: ExitStack) -> None:
    """Show what was written before, then start whatever has a thread of its own."""
    mirror = Mirror(parts.store.outlooks, parts.live, idle_after_seconds=parts.settings.idle_after_seconds)
    shown = tail = None
    if parts.crew is None:
        shown = Poller("mirror", mirror.look, pause_seconds=MIRROR_PAUSE_SECONDS)
        tail = Poller("tail", _tail(parts, mirror, shown).look)
    mirror.fill(now=time.time())
    _connect(parts, tail)
    for part in (parts.rules, shown, tail, _neighbours(parts, tail), _sharing(parts, limit)):
        if part is not None:
            part.start()
            stack.callback(part.close)
    if parts.crew is not None:
        parts.crew.start(stack)


def _tail(parts: Parts, mirror: Mirror, shown: Poller) -> Tail:
    def heard(events: Sequence[StoredEvent]) -> None:
        """Whatever happens to a run changes what is shown of it; these kinds, also what its trainer is told."""
        for stored in events:
            if stored.event.kind in ("policy", EDIT):
                parts.policies.forget(stored.run_id)
        mirror.note(stored.run_id for stored in events)
        shown.wake()
        parts.wakeups.wake()

    return Tail(parts.store.events, heard=heard)


def _neighbours(parts: Parts, tail: Poller | None) -> Neighbours | None:
    """Return who says that there is something to look at, before a second has passed."""
    if tail is None:
        return None
    return neighbours_of(
        parts.settings, parts.store, counters=parts.counters, heard=lambda _: tail.wake(), pollers=[tail]
    )


def _sharing(parts: Parts, limit: RateLimit) -> Sharing | None:
    settings, failures = parts.settings, parts.counters.redis_failures
    if settings.redis_url is None:
        return None
    url = settings.redis_url.get_secret_value()
    buckets = SharedBuckets(url, per_second=settings.rate_per_second, burst=settings.rate_burst)
    return Sharing(limit, buckets, failed=failures.labels("limits").inc)


def _exposition(settings: Settings, rules: RulesInForce) -> Exposition:
    return Exposition(
        rules=rules,
        extra_signals=settings.metrics_signals,
        max_runs=settings.metrics_max_runs,
        max_scalars=settings.metrics_max_scalars,
    )


def _connect(parts: Parts, tail: Poller | None) -> None:
    """Let every commit wake whoever reads what is new, and the service's gauges read their parts."""
    crew, counters, store = parts.crew, parts.counters, parts.store

    def committed(commit: Commit) -> None:
        counters.commit_seconds.observe(commit.seconds)
        for run_id in commit.edited:
            parts.policies.forget(run_id)
        if crew is not None:
            crew.worker.wake(commit.touched)
            if commit.addressed:
                crew.notifier.wake()
            parts.wakeups.wake()
        elif tail is not None and commit.edited:
            tail.wake()

    def rules_changed() -> None:
        if crew is not None:
            judge_anew(crew.worker, parts.live)

    parts.rules.watched_by(changed=rules_changed, failed=counters.rules_reload_failures.inc)
    counters.about(version=version("trmon"), page_url=(parts.settings.public_url or "").rstrip("/"))
    store.writer.on_commit(committed)
    counters.gauge("trmon_queue_depth", lambda: store.writer.depth)
    if (folder := store.folder) is not None:
        counters.gauge("trmon_disk_free_bytes", lambda: shutil.disk_usage(folder).free)

"""Construction: the parts of the service, made from its settings, opened in order and closed in the opposite one."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from trmon.app.auth import Door, check_bind
from trmon.app.events.wakeups import Wakeups
from trmon.app.live import Live
from trmon.app.metrics.counters import Counters
from trmon.app.metrics.exposition import Exposition
from trmon.app.metrics.observer import CountingObserver
from trmon.app.notifier import Notifier
from trmon.app.parts import Parts
from trmon.app.policies.current import CurrentPolicies
from trmon.app.portrait import Vigil
from trmon.app.pruner import Keep, Pruner
from trmon.app.receivers import receivers_of
from trmon.app.reports.reception import Reception
from trmon.app.rules.inforce import RulesInForce
from trmon.app.settings import Settings
from trmon.app.telling import Tries
from trmon.app.worker import Worker
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.liveness import Patience
from trmon.domain.routing import Routes
from trmon.store import Store
from trmon.store.sqlite import file_of
from trmon.store.writer import Commit

SECONDS_PER_DAY = 86_400.0


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Parts]:
    """Open the parts in order and close them in the opposite one. Errors: NotReady."""
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(Store.open, settings.store_url)
        stack.push_async_callback(asyncio.to_thread, store.close)
        await asyncio.to_thread(store.migrate)
        await asyncio.to_thread(check_bind, settings, store.tokens)
        parts = _assemble(settings, store, rules=_rules(settings))
        for part in (parts.notifier, parts.worker, parts.rules, _pruner(parts)):
            part.start()
            stack.push_async_callback(asyncio.to_thread, part.close)
        stack.callback(parts.wakeups.close)
        yield parts


def _assemble(settings: Settings, store: Store, *, rules: RulesInForce) -> Parts:
    counters, live = Counters(), Live(idle_after_seconds=settings.idle_after_seconds)
    policies, receivers = CurrentPolicies(store.policies, store.runs), receivers_of(settings)
    worker = Worker(
        store.runlog,
        vigil=_vigil(settings, tuple(receivers), rules=rules),
        live=live,
        observer=CountingObserver(counters),
        clock=time.time,
    )
    tries = Tries(max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds)
    notifier = Notifier(
        store.outbox,
        receivers,
        tries=tries,
        remind_seconds=settings.remind_seconds,
        count=lambda outcome: counters.delivery.labels(outcome).inc(),
    )
    parts = Parts(
        settings=settings,
        store=store,
        worker=worker,
        live=live,
        notifier=notifier,
        rules=rules,
        door=Door(store.tokens, is_loopback=settings.is_loopback),
        reception=Reception(store, policies=policies, live=live, counters=counters),
        policies=policies,
        wakeups=Wakeups(asyncio.get_running_loop()),
        counters=counters,
        exposition=_exposition(settings, rules),
    )
    _connect(parts)
    return parts


def _rules(settings: Settings) -> RulesInForce:
    try:
        return RulesInForce(settings.rules_file)
    except InvalidInput as error:
        raise NotReady(f"TRMON_RULES_FILE: {error}; `trmon rules check` says more") from error


def _vigil(settings: Settings, receivers: tuple[str, ...], *, rules: RulesInForce) -> Vigil:
    return Vigil(
        rules=rules,
        routes=Routes(receivers=receivers, by_owner=settings.routes),
        public_url=settings.public_url,
        grace_seconds=settings.grace_seconds,
        patience=Patience(floor_seconds=settings.stall_floor_seconds, factor=settings.stall_factor),
    )


def _exposition(settings: Settings, rules: RulesInForce) -> Exposition:
    return Exposition(
        rules=rules,
        extra_signals=settings.metrics_signals,
        max_runs=settings.metrics_max_runs,
        max_scalars=settings.metrics_max_scalars,
    )


def _pruner(parts: Parts) -> Pruner:
    settings, pruned = parts.settings, parts.counters.pruned
    return Pruner(
        parts.store.retention,
        keep=Keep(
            max_age_seconds=settings.retention_days * SECONDS_PER_DAY,
            max_bytes_per_run=settings.retention_run_bytes,
            max_bytes=settings.retention_bytes,
        ),
        every_seconds=settings.retention_every_seconds,
        clock=time.time,
        count=lambda what, n: pruned.labels(what).inc(n),
    )


def _connect(parts: Parts) -> None:
    """Let every commit wake whoever reads what is new, and the service's gauges read their parts."""

    def committed(commit: Commit) -> None:
        parts.counters.commit_seconds.observe(commit.seconds)
        parts.worker.wake(commit.touched)
        parts.notifier.wake()
        parts.wakeups.wake()

    def rules_changed() -> None:
        parts.worker.wake(view.run.id for view in parts.live.active(time.time()))

    parts.rules.watched_by(changed=rules_changed, failed=parts.counters.rules_reload_failures.inc)
    writer, folder = parts.store.writer, file_of(parts.settings.store_url).parent
    writer.on_commit(committed)
    parts.counters.gauge("trmon_queue_depth", "Operations that wait for the disk.", lambda: writer.depth)
    parts.counters.gauge(
        "trmon_disk_free_bytes", "Free space of the database's disk.", lambda: shutil.disk_usage(folder).free
    )

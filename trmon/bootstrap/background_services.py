"""The background services of a process: worker, dispatcher, pruner, lake mover, leases and notices of peers."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial

import structlog

from trmon.config.rules import ActiveRules
from trmon.config.settings import Settings
from trmon.domain.alerts.delivery import RetryPolicy
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.ownership import Ownership, slot_of
from trmon.domain.runs.liveness import SilenceLimits
from trmon.fleet.changes import PeriodicThread
from trmon.fleet.heartbeats import Heartbeat
from trmon.fleet.lease_renewal import LeaseManager
from trmon.fleet.views import RunViewCache
from trmon.metrics.counters import Counters
from trmon.notify.dispatcher import DeliveryPolicy, Dispatcher
from trmon.notify.registry import pictures_of, receivers_of, routes_of
from trmon.store import ProcessRole, Store
from trmon.store.redis import CommitNotice, PubSub
from trmon.worker.process import WorkerProcess
from trmon.worker.run_context import WatchConfig
from trmon.worker.thread import Worker

SECONDS_PER_DAY = 86_400.0
THRESHOLDS = (20_000, 20, 20)
"""A pass of the worker makes thousands of short-lived objects; the default would start a collection every 700."""
MALLOPT_MMAP_THRESHOLD = -3
MMAP_BYTES = 1 << 20

log = structlog.get_logger(__name__)


def reevaluate_runs(worker: Worker | WorkerProcess, view_cache: RunViewCache) -> None:
    """Schedule a pass over every run in the cache, idle ones included: the rules have changed."""
    worker.wake(view.run.id for view in view_cache.active(time.time()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundServices:
    """The worker, the dispatcher and what prunes and moves, over this process's runs: all without a lease manager."""

    worker: Worker | WorkerProcess
    dispatcher: Dispatcher
    pruner: PeriodicThread
    lake_mover: PeriodicThread | None = None
    lease_manager: LeaseManager | None = None

    def start(self, stack: ExitStack) -> None:
        """Start each service, and have the stack close them: the leases last, after the worker's checkpoints."""
        before = (self.lease_manager, self.pruner, self.lake_mover)
        for service in (*before, self.dispatcher, self.worker):
            if service is not None:
                service.start()
                stack.callback(service.close)

    def check(self) -> None:
        """Raise NotReady unless all are running and the worker makes progress."""
        services = (("worker", self.worker), ("dispatcher", self.dispatcher), ("lease manager", self.lease_manager))
        for name, service in services:
            if service is not None and not service.alive:
                raise NotReady(f"the {name} has stopped; see the service's log")
        if (age_seconds := self.worker.beat_age_seconds) > HUNG_SECONDS:
            raise NotReady(f"the worker has made no progress for {age_seconds:.0f} s; see the service's log")


def build_background_services(
    settings: Settings,
    store: Store,
    *,
    rules: ActiveRules,
    view_cache: RunViewCache,
    counters: Counters,
    lease_manager: LeaseManager | None = None,
    heartbeat: Heartbeat | None = None,
) -> BackgroundServices:
    """Return the services, not started; they own the runs of the lease manager's slots, or all runs without one.

    Args: heartbeat: that of a worker in a thread of this process.
    """
    ownership, watch_config = lease_manager or Ownership(), watch_config_of(settings, rules=rules, heartbeat=heartbeat)
    worker: Worker | WorkerProcess
    if store.role is ProcessRole.WRITER:
        worker = WorkerProcess(settings, store.run_log, views=view_cache, observer=counters)
    else:
        worker = Worker(
            store.run_log,
            writer=store.run_log,
            watch_config=watch_config,
            views=view_cache,
            observer=counters,
            ownership=ownership,
            monotonic=time.monotonic,
        )
    cleaning = partial(_owns_first_slot, ownership)
    if lease_manager is not None:
        lease_manager.on_gain = lambda: worker.wake(())
    return BackgroundServices(
        worker=worker,
        dispatcher=_dispatcher(settings, store, rules=rules, counters=counters, ownership=ownership),
        pruner=_pruner(settings, store, counters=counters, is_ours=cleaning),
        lake_mover=_lake_mover(settings, store, counters=counters, is_ours=cleaning),
        lease_manager=lease_manager,
    )


def watch_config_of(settings: Settings, *, rules: ActiveRules, heartbeat: Heartbeat | None = None) -> WatchConfig:
    """Return the part of the settings that every run's evaluation uses."""
    return WatchConfig(
        rules=rules,
        routes=routes_of(settings),
        public_url=settings.public_url,
        runbook_base_url=settings.runbook_url,
        grace_seconds=settings.grace_seconds,
        patience=SilenceLimits(floor_seconds=settings.stall_floor_seconds, factor=settings.stall_factor),
        heartbeat=heartbeat or Heartbeat(),
    )


def _dispatcher(
    settings: Settings, store: Store, *, rules: ActiveRules, counters: Counters, ownership: Ownership
) -> Dispatcher:
    policy = DeliveryPolicy(
        routes=routes_of(settings),
        retry=RetryPolicy(
            max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds
        ),
        remind_seconds=settings.remind_seconds,
        stall_quiet_seconds=min(settings.stall_group_seconds, settings.stall_floor_seconds / 2),
        health_rules=rules.health_rules,
    )
    return Dispatcher(
        store.outbox,
        receivers_of(settings),
        ownership=ownership,
        policy=policy,
        count=lambda outcome: counters.delivery.labels(outcome).inc(),
        pictures=pictures_of(settings, store),
    )


def _owns_first_slot(ownership: Ownership) -> bool:
    """Whether this process owns the first slot: its owner prunes and moves for all processes."""
    fences = ownership.fences()
    return fences is None or slot_of(None) in fences


def _lake_mover(
    settings: Settings, store: Store, *, counters: Counters, is_ours: Callable[[], bool]
) -> PeriodicThread | None:
    """Return the thread that moves attempts of ended runs to the lake; the next start completes a lake batch."""
    if (url := settings.lake_url) is None:
        return None
    open_lake = cache(store.lake)

    def move() -> None:
        done = open_lake(url).run_pass(
            now=time.time(), after_seconds=settings.lake_after_seconds, may_continue=thread.may_continue
        )
        for batch in done.batches:
            counters.lake.labels("attempts").inc(len(batch.members))
            counters.lake.labels("reports").inc(batch.n_reports)
            counters.lake.labels("bytes").inc(batch.n_bytes)
            log.info("lake_batch_moved", id=batch.id, attempts=len(batch.members), reports=batch.n_reports)
        counters.lake.labels("deleted_runs").inc(done.deleted_runs)
        counters.lake.labels("merged_files").inc(done.merged_files)

    thread = PeriodicThread(
        "lake-mover",
        move,
        every_seconds=settings.lake_every_seconds,
        is_ours=is_ours,
        failure="lake_move_failed",
        on_failure=counters.lake.labels("failures").inc,
    )
    return thread


def _pruner(settings: Settings, store: Store, *, counters: Counters, is_ours: Callable[[], bool]) -> PeriodicThread:
    """Return the thread that deletes what is beyond the limits of retention, in small transactions."""

    def prune() -> None:
        pruned = store.retention.prune(
            now=time.time(),
            max_age_seconds=settings.retention_days * SECONDS_PER_DAY,
            max_bytes_per_run=settings.retention_run_bytes,
            max_bytes=settings.retention_bytes,
            max_audit_age_seconds=settings.audit_days * SECONDS_PER_DAY,
            keeps_for_lake=settings.lake_url is not None,
            may_continue=thread.may_continue,
        )
        for name, n in asdict(pruned).items():
            counters.pruned.labels(name).inc(n)

    thread = PeriodicThread(
        "pruner",
        prune,
        every_seconds=settings.retention_every_seconds,
        is_ours=is_ours,
        failure="pruning_failed",
        on_failure=counters.pruned.labels("failures").inc,
    )
    return thread


def rules_thread(rules: ActiveRules) -> PeriodicThread | None:
    """Return the thread that reloads the rules file when it changes, not started; None without a file."""
    return None if rules.path is None else PeriodicThread("rules", rules.refresh)


def tune_memory() -> None:
    """Leave all present objects out of later collections, collect less often, and return large blocks once freed.

    With 200,000 objects of imported modules a full collection takes 50 to 350 ms every few hundred batches, and delays
    alerts and responses by as much. glibc would keep blocks of up to 32 MiB, as bodies are, after the first is freed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    with suppress(AttributeError):  # other C libraries have no such setting
        ctypes.CDLL(None).mallopt(MALLOPT_MMAP_THRESHOLD, MMAP_BYTES)


def connect_peers(
    settings: Settings,
    store: Store,
    *,
    counters: Counters,
    on_notice: Callable[[CommitNotice], None],
    pollers: Iterable[PeriodicThread] = (),
) -> PubSub | None:
    """Return a connection, not started, that publishes each commit of the store; None without Redis or with SQLite.

    A lost notice loses no data: every receiver also polls the database.

    Args: on_notice: called with each notice of another process, on its own thread; it must be quick; pollers:
    those that notices wake: they poll less often while the connection is up. Errors: NotReady for an invalid URL.
    """
    if settings.redis_url is None or not store.is_shared:
        return None
    peers = PubSub(
        settings.redis_url.get_secret_value(),
        on_notice=on_notice,
        on_failure=lambda operation: counters.redis_failures.labels(operation).inc(),
    )
    counters.redis_up.set_function(lambda: peers.is_connected)
    # A commit that changes no run may still have written events.
    store.writer.on_commit(
        lambda commit: peers.publish(
            CommitNotice(touched=commit.touched, edited=commit.edited, has_deliveries=bool(commit.receivers))
        )
    )
    for poller in pollers:
        poller.is_notified = lambda: peers.is_connected
    return peers

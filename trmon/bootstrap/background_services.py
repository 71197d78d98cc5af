"""Builds the background services of a process: worker, dispatcher, pruner, lake mover and leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from trmon.background.lake_mover import LakeMoverThread
from trmon.background.poller import Poller
from trmon.background.pruner import Pruner, RetentionLimits
from trmon.config.active_rules import ActiveRules
from trmon.config.settings import Settings
from trmon.domain.alerts.delivery import RetryPolicy
from trmon.domain.model.errors import NotReady
from trmon.domain.ports import Ownership, slot_of
from trmon.domain.runs.liveness import SilenceLimits
from trmon.hosts.fleet.lease_manager import LeaseManager
from trmon.hosts.subprocess.worker_process import WorkerProcess
from trmon.metrics.counters import Counters
from trmon.metrics.worker_observer import CountingObserver
from trmon.notifications.configured_receivers import receivers_of, routes_of
from trmon.notifications.delivery_attempt import DeliveryPolicy
from trmon.notifications.delivery_queue import DeliveryQueue
from trmon.notifications.dispatcher import Dispatcher
from trmon.notifications.fenced_outbox import FencedOutbox
from trmon.notifications.receivers.receiver import Receiver
from trmon.runner.ownership import SoleOwner
from trmon.runner.run_context import WatchConfig
from trmon.runner.worker import Worker
from trmon.store import ProcessRole, Store
from trmon.views.run_view_cache import RunViewCache
from trmon.views.summary_updates import SummarySink, SummaryUpdater

SECONDS_PER_DAY = 86_400.0


class WorkerHandle(Protocol):
    """Controls a worker: one in a thread of this process, or one in a process of its own."""

    def start(self) -> None:
        """Start, with every run that is unfinished or has unread messages."""

    def wake(self, run_ids: Iterable[int], /) -> None:
        """Schedule a pass over these runs; never blocks for long, may be called from any thread."""

    @property
    def alive(self) -> bool:
        """Whether the worker runs."""

    def close(self) -> None:
        """Stop, after the pending work of every run."""


def reevaluate_runs(worker: WorkerHandle, view_cache: RunViewCache) -> None:
    """Schedule a pass over every run in the cache, idle ones included: the rules have changed."""
    worker.wake(view.run.id for view in view_cache.active(time.time()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundServices:
    """The worker, the dispatcher and what prunes and moves, over the runs of this process: all without a lease manager.

    A worker in a process of its own polls for outdated summaries there; one in a thread beside it.
    """

    worker: WorkerHandle
    dispatcher: Dispatcher
    pruner: Pruner
    lake_mover: LakeMoverThread | None = None
    summary_poller: Poller | None = None
    lease_manager: LeaseManager | None = None

    def start(self, stack: ExitStack) -> None:
        """Start each service, and have the stack close them: the leases last, after the worker's checkpoints."""
        before = (self.lease_manager, self.pruner, self.lake_mover)
        for service in (*before, self.dispatcher, self.worker, self.summary_poller):
            if service is not None:
                service.start()
                stack.callback(service.close)

    def check(self) -> None:
        """Raise NotReady unless all are running."""
        services = (("worker", self.worker), ("dispatcher", self.dispatcher), ("lease manager", self.lease_manager))
        for name, service in services:
            if service is not None and not service.alive:
                raise NotReady(f"the {name} has stopped; see the service's log")


def build_background_services(
    settings: Settings,
    store: Store,
    *,
    rules: ActiveRules,
    view_cache: RunViewCache,
    counters: Counters,
    lease_manager: LeaseManager | None = None,
) -> BackgroundServices:
    """Return the services, not started; they own the runs of the lease manager's slots, or all runs without one."""
    ownership = SoleOwner() if lease_manager is None else lease_manager
    receivers = receivers_of(settings)
    worker = _worker(settings, store, rules=rules, view_cache=view_cache, counters=counters, ownership=ownership)
    dispatcher = _dispatcher(settings, FencedOutbox(store.outbox, ownership), receivers, counters=counters)
    cleaning = partial(_owns_first_slot, ownership)
    pruner = _pruner(settings, store, counters=counters, is_ours=cleaning)
    summary_poller = None
    if store.role is not ProcessRole.WRITER:
        summary_poller = summary_poller_of(store, store.summaries, ownership=ownership)
    if lease_manager is not None:
        lease_manager.on_gain(lambda: worker.wake(()))
    return BackgroundServices(
        worker=worker,
        dispatcher=dispatcher,
        pruner=pruner,
        lake_mover=_lake_mover(settings, store, counters=counters, is_ours=cleaning),
        summary_poller=summary_poller,
        lease_manager=lease_manager,
    )


def summary_poller_of(store: Store, sink: SummarySink, *, ownership: Ownership) -> Poller:
    """Return the thread that makes outdated summaries, not started."""
    updater = SummaryUpdater(store, sink, ownership=ownership, clock=time.time, monotonic=time.monotonic)
    return Poller("summaries", updater.poll)


def _worker(
    settings: Settings,
    store: Store,
    *,
    rules: ActiveRules,
    view_cache: RunViewCache,
    counters: Counters,
    ownership: Ownership,
) -> WorkerHandle:
    observer = CountingObserver(counters)
    if store.role is ProcessRole.WRITER:
        return WorkerProcess(settings, store.run_log, summaries=store.summaries, views=view_cache, observer=observer)
    return Worker(
        store.run_log,
        writer=store.run_log,
        watch_config=watch_config_of(settings, rules=rules),
        views=view_cache,
        observer=observer,
        ownership=ownership,
        clock=time.time,
        monotonic=time.monotonic,
    )


def watch_config_of(settings: Settings, *, rules: ActiveRules) -> WatchConfig:
    """Return the part of the settings that every run's evaluation uses."""
    return WatchConfig(
        rules=rules,
        routes=routes_of(settings),
        public_url=settings.public_url,
        runbook_base_url=settings.runbooks,
        grace_seconds=settings.grace_seconds,
        patience=SilenceLimits(floor_seconds=settings.stall_floor_seconds, factor=settings.stall_factor),
    )


def _dispatcher(
    settings: Settings, outbox: DeliveryQueue, receivers: Mapping[str, Receiver], *, counters: Counters
) -> Dispatcher:
    policy = DeliveryPolicy(
        routes=routes_of(settings),
        retry=RetryPolicy(
            max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds
        ),
        remind_seconds=settings.remind_seconds,
        stall_quiet_seconds=min(settings.stall_group_seconds, settings.stall_floor_seconds / 2),
    )
    return Dispatcher(outbox, receivers, policy=policy, count=lambda outcome: counters.delivery.labels(outcome).inc())


def _owns_first_slot(ownership: Ownership) -> bool:
    """Whether this process owns the first slot: its owner prunes and moves for all processes."""
    fences = ownership.fences()
    return fences is None or slot_of(None) in fences


def _lake_mover(
    settings: Settings, store: Store, *, counters: Counters, is_ours: Callable[[], bool]
) -> LakeMoverThread | None:
    if settings.lake_url is None:
        return None
    return LakeMoverThread(
        partial(store.lake, settings.lake_url),
        after_seconds=settings.lake_after_seconds,
        every_seconds=settings.lake_every_seconds,
        is_ours=is_ours,
        clock=time.time,
        count=lambda name, n: counters.lake.labels(name).inc(n),
    )


def _pruner(settings: Settings, store: Store, *, counters: Counters, is_ours: Callable[[], bool]) -> Pruner:
    return Pruner(
        store.retention,
        limits=RetentionLimits(
            max_age_seconds=settings.retention_days * SECONDS_PER_DAY,
            max_bytes_per_run=settings.retention_run_bytes,
            max_bytes=settings.retention_bytes,
            max_audit_age_seconds=settings.audit_days * SECONDS_PER_DAY,
            keeps_for_lake=settings.lake_url is not None,
        ),
        every_seconds=settings.retention_every_seconds,
        is_ours=is_ours,
        clock=time.time,
        count=lambda name, n: counters.pruned.labels(name).inc(n),
    )

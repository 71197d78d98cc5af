"""The crew of a process: whoever watches runs, tells people, and keeps the database small."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from trmon.background.pruner import Pruner, RetentionLimits
from trmon.config.active_rules import ActiveRules
from trmon.config.settings import Settings
from trmon.domain.alerts.settlement import RetryPolicy
from trmon.domain.model.errors import NotReady
from trmon.domain.model.slots import slot_of
from trmon.domain.ports import Ownership
from trmon.domain.runs.liveness import Patience
from trmon.hosts.fleet.lease_manager import LeaseManager
from trmon.hosts.subprocess.worker_process import WorkerProcess
from trmon.metrics.counters import Counters
from trmon.metrics.worker_observer import CountingObserver
from trmon.notifications.configured_receivers import receivers_of, routes_of
from trmon.notifications.dispatcher import DeliveryQueue, Dispatcher
from trmon.notifications.fenced_outbox import FencedOutbox
from trmon.notifications.notifier import Notifier
from trmon.notifications.receivers.receiver import Receiver
from trmon.runner.ownership import SoleOwner
from trmon.runner.run_context import WatchConfig
from trmon.runner.worker import Worker
from trmon.store import ProcessRole, Store
from trmon.views.run_view_cache import RunViewCache

SECONDS_PER_DAY = 86_400.0


class RunWatcher(Protocol):
    """Whoever watches runs: a worker, or the attendant of one in a process of its own."""

    def start(self) -> None:
        """Begin, with every run that has not ended or was not read to its end."""

    def wake(self, run_ids: Iterable[int]) -> None:
        """Look at these runs soon; never blocks for long, may be called from any thread."""

    @property
    def alive(self) -> bool:
        """Whether runs are being watched."""

    def close(self) -> None:
        """Stop, once every run is at rest."""


def reevaluate_runs(watcher: RunWatcher, live: RunViewCache) -> None:
    """Have every run that is shown looked at, also what is at rest: the rules have changed."""
    watcher.wake(view.run.id for view in live.active(time.time()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundServices:
    """The worker, the notifier and the pruner, over the runs that are the process's own; tenancy None: all."""

    worker: RunWatcher
    notifier: Notifier
    pruner: Pruner
    lease_manager: LeaseManager | None = None

    def start(self, stack: ExitStack) -> None:
        """Start each, and let the stack close them: the leases last, once every run is at rest."""
        for part in (self.lease_manager, self.pruner, self.notifier, self.worker):
            if part is not None:
                part.start()
                stack.callback(part.close)

    def check(self) -> None:
        """Raise NotReady unless all are at work."""
        for name, part in (("worker", self.worker), ("notifier", self.notifier), ("tenancy", self.lease_manager)):
            if part is not None and not part.alive:
                raise NotReady(f"the {name} has stopped; the service's log says why")


def build_background_services(
    settings: Settings,
    store: Store,
    *,
    rules: ActiveRules,
    live: RunViewCache,
    counters: Counters,
    lease_manager: LeaseManager | None = None,
) -> BackgroundServices:
    """Return a crew, not started; with a tenancy it owns what that holds, else everything."""
    ownership = SoleOwner() if lease_manager is None else lease_manager
    receivers = receivers_of(settings)
    worker = _watcher(settings, store, rules=rules, live=live, counters=counters, ownership=ownership)
    notifier = _notifier(settings, FencedOutbox(store.outbox, ownership), receivers, counters=counters)
    pruner = _pruner(settings, store, counters=counters, ownership=ownership)
    if lease_manager is not None:
        lease_manager.on_gain(lambda: worker.wake(()))
    return BackgroundServices(worker=worker, notifier=notifier, pruner=pruner, lease_manager=lease_manager)


def _watcher(
    settings: Settings,
    store: Store,
    *,
    rules: ActiveRules,
    live: RunViewCache,
    counters: Counters,
    ownership: Ownership,
) -> RunWatcher:
    observer = CountingObserver(counters)
    if store.role is ProcessRole.WRITER:
        return WorkerProcess(settings, store.run_log, display=live, observer=observer)
    return Worker(
        store.run_log,
        outcomes=store.run_log,
        watch_config=watch_config_of(settings, rules=rules),
        display=live,
        observer=observer,
        ownership=ownership,
        clock=time.time,
    )


def watch_config_of(settings: Settings, *, rules: ActiveRules) -> WatchConfig:
    """Return how the settings say that runs are watched."""
    return WatchConfig(
        rules=rules,
        routes=routes_of(settings),
        public_url=settings.public_url,
        grace_seconds=settings.grace_seconds,
        patience=Patience(floor_seconds=settings.stall_floor_seconds, factor=settings.stall_factor),
    )


def _notifier(
    settings: Settings, outbox: DeliveryQueue, receivers: Mapping[str, Receiver], *, counters: Counters
) -> Notifier:
    def count(outcome: str) -> None:
        counters.delivery.labels(outcome).inc()

    tries = RetryPolicy(max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds)
    dispatcher = Dispatcher(
        outbox,
        receivers,
        tries=tries,
        routes=routes_of(settings),
        remind_seconds=settings.remind_seconds,
        count=count,
    )
    return Notifier(outbox, receivers, dispatcher=dispatcher, count=count)


def _pruner(settings: Settings, store: Store, *, counters: Counters, ownership: Ownership) -> Pruner:
    def is_ours() -> bool:
        """Whoever owns the first slot prunes for all."""
        fences = ownership.fences()
        return fences is None or slot_of(None) in fences

    return Pruner(
        store.retention,
        keep=RetentionLimits(
            max_age_seconds=settings.retention_days * SECONDS_PER_DAY,
            max_bytes_per_run=settings.retention_run_bytes,
            max_bytes=settings.retention_bytes,
        ),
        every_seconds=settings.retention_every_seconds,
        is_ours=is_ours,
        clock=time.time,
        count=lambda what, n: counters.pruned.labels(what).inc(n),
    )

"""The crew of a process: whoever watches runs, tells people, and keeps the database small."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from trmon.background.pruner import Keep, Pruner
from trmon.config.active_rules import RulesInForce
from trmon.config.settings import Settings
from trmon.domain.alerts.settlement import Tries
from trmon.domain.model.errors import NotReady
from trmon.domain.model.slots import slot_of
from trmon.domain.ports import Ownership
from trmon.domain.runs.liveness import Patience
from trmon.hosts.fleet.lease_manager import Tenancy
from trmon.hosts.subprocess.worker_process import Attendant
from trmon.metrics.counters import Counters
from trmon.metrics.worker_observer import CountingObserver
from trmon.notifications.configured_receivers import receivers_of, routes_of
from trmon.notifications.dispatcher import Outbox, Teller
from trmon.notifications.fenced_outbox import LeasedOutbox
from trmon.notifications.notifier import Notifier
from trmon.notifications.receivers.receiver import Receiver
from trmon.runner.ownership import SoleOwner
from trmon.runner.run_context import Vigil
from trmon.runner.worker import Worker
from trmon.store import Role, Store
from trmon.views.run_view_cache import Live

SECONDS_PER_DAY = 86_400.0


class Watcher(Protocol):
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


def judge_anew(watcher: Watcher, live: Live) -> None:
    """Have every run that is shown looked at, also what is at rest: the rules have changed."""
    watcher.wake(view.run.id for view in live.active(time.time()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The worker, the notifier and the pruner, over the runs that are the process's own; tenancy None: all."""

    worker: Watcher
    notifier: Notifier
    pruner: Pruner
    tenancy: Tenancy | None = None

    def start(self, stack: ExitStack) -> None:
        """Start each, and let the stack close them: the leases last, once every run is at rest."""
        for part in (self.tenancy, self.pruner, self.notifier, self.worker):
            if part is not None:
                part.start()
                stack.callback(part.close)

    def check(self) -> None:
        """Raise NotReady unless all are at work."""
        for name, part in (("worker", self.worker), ("notifier", self.notifier), ("tenancy", self.tenancy)):
            if part is not None and not part.alive:
                raise NotReady(f"the {name} has stopped; the service's log says why")


def crew_of(
    settings: Settings,
    store: Store,
    *,
    rules: RulesInForce,
    live: Live,
    counters: Counters,
    tenancy: Tenancy | None = None,
) -> Crew:
    """Return a crew, not started; with a tenancy it owns what that holds, else everything."""
    ownership = SoleOwner() if tenancy is None else tenancy
    receivers = receivers_of(settings)
    worker = _watcher(settings, store, rules=rules, live=live, counters=counters, ownership=ownership)
    notifier = _notifier(settings, LeasedOutbox(store.outbox, ownership), receivers, counters=counters)
    pruner = _pruner(settings, store, counters=counters, ownership=ownership)
    if tenancy is not None:
        tenancy.on_gain(lambda: worker.wake(()))
    return Crew(worker=worker, notifier=notifier, pruner=pruner, tenancy=tenancy)


def _watcher(
    settings: Settings, store: Store, *, rules: RulesInForce, live: Live, counters: Counters, ownership: Ownership
) -> Watcher:
    observer = CountingObserver(counters)
    if store.role is Role.WRITER:
        return Attendant(settings, store.runlog, display=live, observer=observer)
    return Worker(
        store.runlog,
        outcomes=store.runlog,
        vigil=vigil_of(settings, rules=rules),
        display=live,
        observer=observer,
        ownership=ownership,
        clock=time.time,
    )


def vigil_of(settings: Settings, *, rules: RulesInForce) -> Vigil:
    """Return how the settings say that runs are watched."""
    return Vigil(
        rules=rules,
        routes=routes_of(settings),
        public_url=settings.public_url,
        grace_seconds=settings.grace_seconds,
        patience=Patience(floor_seconds=settings.stall_floor_seconds, factor=settings.stall_factor),
    )


def _notifier(settings: Settings, outbox: Outbox, receivers: Mapping[str, Receiver], *, counters: Counters) -> Notifier:
    def count(outcome: str) -> None:
        counters.delivery.labels(outcome).inc()

    tries = Tries(max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds)
    teller = Teller(
        outbox,
        receivers,
        tries=tries,
        routes=routes_of(settings),
        remind_seconds=settings.remind_seconds,
        count=count,
    )
    return Notifier(outbox, receivers, teller=teller, count=count)


def _pruner(settings: Settings, store: Store, *, counters: Counters, ownership: Ownership) -> Pruner:
    def is_ours() -> bool:
        """Whoever owns the first slot prunes for all."""
        fences = ownership.fences()
        return fences is None or slot_of(None) in fences

    return Pruner(
        store.retention,
        keep=Keep(
            max_age_seconds=settings.retention_days * SECONDS_PER_DAY,
            max_bytes_per_run=settings.retention_run_bytes,
            max_bytes=settings.retention_bytes,
        ),
        every_seconds=settings.retention_every_seconds,
        is_ours=is_ours,
        clock=time.time,
        count=lambda what, n: counters.pruned.labels(what).inc(n),
    )

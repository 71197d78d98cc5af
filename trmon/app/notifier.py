"""The notifier: drains the outbox, each receiver at its own pace, until every delivery is done or given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Protocol

import structlog

from trmon.domain.alerts import Delivery
from trmon.notify.receiver import Outcome, Receiver, Result

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.1
"""Shortest time between two looks at the outbox, however often it is woken."""
MAX_BACKOFF_SECONDS = 600.0
MAX_DUE = 1000
THREADS_PER_RECEIVER = 2

log = structlog.get_logger(__name__)


class Outbox(Protocol):
    """What the notifier asks of the store; what it marks is durable when the call returns."""

    def due(self, *, now: float, limit: int) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first."""

    def delivered(self, delivery_id: int, *, now: float) -> None:
        """Mark a delivery as done."""

    def failed(self, delivery_id: int, *, now: float, retry_at: float, error: str) -> None:
        """Count a failed try and say when the next one is."""

    def dead(self, delivery_id: int, *, now: float, error: str) -> None:
        """Give a delivery up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How long a delivery is tried: the wait doubles from `backoff_seconds` up to ten minutes."""

    max_attempts: int
    backoff_seconds: float

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after a number of failed tries, from 1."""
        return float(min(self.backoff_seconds * 2.0 ** min(attempts - 1, 32), MAX_BACKOFF_SECONDS))


class Notifier:
    """A thread that looks at the outbox and, for each receiver, threads of its own, so that a slow one delays none."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        tries: Tries,
        count: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._tries = tries
        self._count = count
        self._executors = {
            name: ThreadPoolExecutor(THREADS_PER_RECEIVER, thread_name_prefix=f"trmon-notify-{name}")
            for name in receivers
        }
        self._in_flight: set[int] = set()
        self._lock = Lock()
        self._wakeup = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-notifier", daemon=True)

    def start(self) -> None:
        """Begin to drain."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether deliveries are being tried."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look at the outbox soon; may be called from any thread."""
        self._wakeup.set()

    def close(self) -> None:
        """Stop after the tries that are under way; what is left waits in the outbox."""
        self._stopping.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join()
        for name, executor in self._executors.items():
            executor.shutdown(cancel_futures=True)
            self._receivers[name].close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wakeup.clear()
            try:
                self._dispatch_due(now=time.time())
            except Exception as error:  # noqa: BLE001 - the edge of the notifier's loop: the next look tries again
                self._count("error")
                log.warning("outbox_unreadable", error=type(error).__name__)
            self._stopping.wait(PAUSE_SECONDS)
            self._wakeup.wait(POLL_SECONDS)

    def _dispatch_due(self, *, now: float) -> None:
        with self._lock:
            busy = frozenset(self._in_flight)
        for delivery in self._outbox.due(now=now, limit=MAX_DUE + len(busy)):
            if delivery.id in busy:
                continue
            executor = self._executors.get(delivery.receiver)
            if executor is None:
                self._settle(delivery, Result(Outcome.REFUSED, "no such receiver is configured"))
                continue
            with self._lock:
                self._in_flight.add(delivery.id)
            executor.submit(self._try, delivery)

    def _try(self, delivery: Delivery) -> None:
        try:
            self._settle(delivery, self._receivers[delivery.receiver].deliver(delivery, now=time.time()))
        except Exception as error:  # noqa: BLE001 - the edge of a delivery: it stays due and is tried again
            self._count("error")
            log.warning("delivery_unsettled", receiver=delivery.receiver, error=type(error).__name__)
        finally:
            with self._lock:
                self._in_flight.discard(delivery.id)

    def _settle(self, delivery: Delivery, result: Result) -> None:
        now, attempts = time.time(), delivery.attempts + 1
        if result.outcome is Outcome.DELIVERED:
            self._outbox.delivered(delivery.id, now=now)
            self._count("delivered")
        elif result.outcome is Outcome.RETRY and attempts < self._tries.max_attempts:
            retry_at = now + self._tries.wait_seconds(attempts)
            self._outbox.failed(delivery.id, now=now, retry_at=retry_at, error=result.reason)
            self._count("retried")
        else:
            self._outbox.dead(delivery.id, now=now, error=result.reason)
            self._count("dead")
            log.warning("delivery_dead", receiver=delivery.receiver, attempts=attempts, reason=result.reason)

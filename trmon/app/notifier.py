"""The notifier: drains the outbox, each receiver at its own pace, until every delivery is done or given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread

import structlog

from trmon.app.telling import Outbox, Teller, Tries
from trmon.domain.alerts import Delivery
from trmon.notify.receiver import Receiver

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.1
"""Shortest time between two looks at the outbox, however often it is woken."""
MAX_DUE = 1000
THREADS_PER_RECEIVER = 2

Subject = tuple[str, str | int]
"""A receiver and an episode of an alert: what is told of it is told in order."""

log = structlog.get_logger(__name__)


class Notifier:
    """A thread that looks at the outbox and, for each receiver, threads of its own, so that a slow one delays none."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        tries: Tries,
        remind_seconds: float,
        count: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._teller = Teller(outbox, receivers, tries=tries, remind_seconds=remind_seconds, count=count)
        self._count = count
        self._executors = {
            name: ThreadPoolExecutor(THREADS_PER_RECEIVER, thread_name_prefix=f"trmon-notify-{name}")
            for name in receivers
        }
        self._in_flight: set[Subject] = set()
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
        """What is in flight is looked up before the outbox is, so that nothing settled in between is told twice."""
        with self._lock:
            busy = set(self._in_flight)
        for delivery in self._outbox.due(now=now, limit=MAX_DUE + len(busy)):
            subject = (delivery.receiver, delivery.episode or delivery.id)
            if subject in busy:
                continue
            busy.add(subject)
            executor = self._executors.get(delivery.receiver)
            if executor is None:
                self._teller.tell(delivery)
                continue
            with self._lock:
                self._in_flight.add(subject)
            executor.submit(self._try, delivery, subject)

    def _try(self, delivery: Delivery, subject: Subject) -> None:
        try:
            self._teller.tell(delivery)
        except Exception as error:  # noqa: BLE001 - the edge of a delivery: it stays due and is tried again
            self._count("error")
            log.warning("delivery_unsettled", receiver=delivery.receiver, error=type(error).__name__)
        finally:
            with self._lock:
                self._in_flight.discard(subject)

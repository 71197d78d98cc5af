"""The notifier: drains the outbox, each receiver at its own pace, until every delivery is done or given up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import structlog

from trmon.background.poller import Poller
from trmon.domain.alerts.alert import Subject
from trmon.domain.alerts.grouping import Group, group_deliveries
from trmon.notifications.dispatcher import DeliveryQueue, Dispatcher
from trmon.notifications.receivers.receiver import Receiver

GATHER_SECONDS = 0.005
"""Wait between a wake-up and a look at the outbox: alerts that come together are told together."""
MAX_DUE = 1000
"""How many deliveries one look hands out; a receiver that has as many under way gets no more until it has fewer."""
PER_SUBJECT = 2
"""Of an alert there may wait that it fires and that it has resolved."""
THREADS_PER_RECEIVER = 2

log = structlog.get_logger(__name__)


class Notifier:
    """A poller of the outbox and, for each receiver, threads of its own, so that a slow one delays none."""

    def __init__(
        self,
        outbox: DeliveryQueue,
        receivers: Mapping[str, Receiver],
        *,
        dispatcher: Dispatcher,
        count: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._dispatcher = dispatcher
        self._count = count
        self._executors = {
            name: ThreadPoolExecutor(THREADS_PER_RECEIVER, thread_name_prefix=f"trmon-notify-{name}")
            for name in receivers
        }
        self._grouping = frozenset(name for name, receiver in receivers.items() if receiver.is_grouping)
        self._in_flight: set[Subject] = set()
        self._lock = Lock()
        self._poller = Poller("notifier", self._look, pause_seconds=GATHER_SECONDS)

    def start(self) -> None:
        """Begin to drain."""
        self._poller.start()

    @property
    def alive(self) -> bool:
        """Whether deliveries are being tried."""
        return self._poller.alive

    def wake(self) -> None:
        """Look at the outbox soon; may be called from any thread."""
        self._poller.wake()

    def close(self) -> None:
        """Stop after the tries that are under way; what is left waits in the outbox."""
        self._poller.close()
        for name, executor in self._executors.items():
            executor.shutdown(cancel_futures=True)
            self._receivers[name].close()

    def _look(self) -> None:
        try:
            self._dispatch_due(now=time.time())
        except Exception as error:  # noqa: BLE001 - counted here; the next look tries again
            self._count("error")
            log.warning("outbox_unreadable", error=type(error).__name__)

    def _dispatch_due(self, *, now: float) -> None:
        """What is in flight is looked up before the outbox is, so that nothing settled in between is told twice."""
        with self._lock:
            busy = set(self._in_flight)
        under_way = Counter(receiver for receiver, _ in busy)
        full = {receiver for receiver, n in under_way.items() if n >= MAX_DUE}
        passed_over = PER_SUBJECT * sum(n for receiver, n in under_way.items() if receiver not in full)
        due = self._outbox.due(now=now, limit=MAX_DUE + passed_over, without=full)
        for group in group_deliveries(due, busy=busy, together=self._grouping):
            self._outbox.take(group)
            executor = self._executors.get(group[0].receiver)
            if executor is None:
                self._dispatcher.tell(group)
                continue
            with self._lock:
                self._in_flight.update(one.subject for one in group)
            executor.submit(self._try, group)

    def _try(self, group: Group) -> None:
        is_settled = self._is_settled(group)
        with self._lock:
            self._in_flight.difference_update(one.subject for one in group)
        if is_settled:
            self.wake()  # what is next of the same alerts may have waited for this

    def _is_settled(self, group: Group) -> bool:
        try:
            self._dispatcher.tell(group)
        except Exception as error:  # noqa: BLE001 - the edge of a delivery: it stays due, and the next poll tries again
            self._count("error")
            log.warning("delivery_unsettled", receiver=group[0].receiver, error=type(error).__name__)
            return False
        return True

"""The dispatcher: reads due deliveries from the outbox, sends them in groups, and records the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import structlog

from trmon.domain.alerts.delivery import Delivery, Group, StallMerging, Subject, group_deliveries, merge_stalls
from trmon.domain.alerts.muting import DeliveryUpdate, DispatchOutcome
from trmon.domain.errors import Fenced
from trmon.domain.ports import Fences, Ownership, slot_of
from trmon.fleet.changes import PeriodicThread
from trmon.notify.delivery_attempt import DeliveryAttempt, DeliveryPolicy
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver
from trmon.store.repositories.deliveries import Outbox

GROUP_WAIT_SECONDS = 0.005
"""Wait between a wake-up and a read of the outbox: alerts of one commit go into one message."""
MAX_DUE = 1000
"""Maximum deliveries per read; a receiver with as many in flight gets no more until it has fewer."""
PER_SUBJECT = 2
"""Deliveries of one alert that may wait at a time: that it fires, and that it has resolved."""
THREADS_PER_RECEIVER = 2

log = structlog.get_logger(__name__)


class Dispatcher:
    """Polls the outbox; each receiver has threads of its own, so that a slow receiver does not delay the others."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        ownership: Ownership,
        policy: DeliveryPolicy,
        count: Callable[[str], None],
    ) -> None:
        """Args: ownership: of runs, whose deliveries this process sends; count: called with the name of each outcome,
        and with "error".
        """
        self._outbox = outbox
        self._ownership = ownership
        self._receivers = receivers
        self._attempt = DeliveryAttempt(outbox, receivers, policy=policy)
        self._unrecorded: dict[int, tuple[Delivery, DeliveryUpdate]] = {}
        """The results that could not be written: the next attempt writes them, and does not send again."""
        self._count = count
        self._executors = {
            name: ThreadPoolExecutor(THREADS_PER_RECEIVER, thread_name_prefix=f"trmon-notify-{name}")
            for name in receivers
        }
        self._grouping = frozenset(name for name, receiver in receivers.items() if receiver.is_grouping)
        merging = frozenset(name for name, receiver in receivers.items() if receiver.merges_runs)
        self._merging = StallMerging(receivers=merging, quiet_seconds=policy.stall_quiet_seconds)
        self._n_waiting = 0
        self._in_flight: set[Subject] = set()
        self._lock = Lock()
        self._poller = PeriodicThread("dispatcher", self._poll, pause_seconds=GROUP_WAIT_SECONDS)

    def start(self) -> None:
        """Start to poll."""
        self._poller.start()

    @property
    def alive(self) -> bool:
        """Whether the polling thread runs."""
        return self._poller.alive

    def wake(self) -> None:
        """Read the outbox soon; may be called from any thread."""
        self._poller.wake()

    def close(self) -> None:
        """Stop after the attempts in flight; the other deliveries stay in the outbox."""
        self._poller.close()
        for name, executor in self._executors.items():
            executor.shutdown(cancel_futures=True)
            self._receivers[name].close()

    def _poll(self) -> None:
        try:
            self._dispatch_due(now=time.time())
        except Exception as error:  # noqa: BLE001 - the edge of the loop: counted, and the next poll tries again
            self._count("error")
            log.warning("outbox_unreadable", error=type(error).__name__)

    def _dispatch_due(self, *, now: float) -> None:
        """Read `in_flight` before the outbox, so that a delivery recorded in between is not sent twice."""
        with self._lock:
            in_flight = set(self._in_flight)
        per_receiver = Counter(receiver for receiver, _ in in_flight)
        full = {receiver for receiver, n in per_receiver.items() if n >= MAX_DUE}
        n_skipped = self._n_waiting + sum(n for receiver, n in per_receiver.items() if receiver not in full)
        fences = self._ownership.fences()
        limit = MAX_DUE + PER_SUBJECT * n_skipped
        due = self._outbox.due(now=now, limit=limit, slots=fences, exclude_receivers=full)
        stalls = merge_stalls(due, in_flight=in_flight, merging=self._merging, now=now)
        self._n_waiting = len(stalls.waiting)
        others = group_deliveries(due, in_flight=in_flight | stalls.subjects, grouping_receivers=self._grouping)
        for group in (*stalls.groups, *others):
            self._submit(group, _claim_of(group, fences))

    def _submit(self, group: Group, claim: Fences | None) -> None:
        executor = self._executors.get(group[0].receiver)
        if executor is None:
            self._dispatch(group, claim)
            return
        with self._lock:
            self._in_flight.update(delivery.subject for delivery in group)
        executor.submit(self._dispatch_and_wake, group, claim)

    def _dispatch_and_wake(self, group: Group, claim: Fences | None) -> None:
        is_recorded = True
        try:
            self._dispatch(group, claim)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: it stays due, and the next poll tries again
            is_recorded = False
            self._count("error")
            log.warning("delivery_not_recorded", receiver=group[0].receiver, error=type(error).__name__)
        with self._lock:
            self._in_flight.difference_update(delivery.subject for delivery in group)
        if is_recorded:
            self.wake()  # the next deliveries of the same alerts may have waited for these

    def _dispatch(self, group: Group, claim: Fences | None) -> None:
        """Attempt a group and record the results, unless another process owns its runs by now."""
        if claim is not None and not claim.items() <= (self._ownership.fences() or {}).items():
            return
        remembered = [self._unrecorded[delivery.id] for delivery in group if delivery.id in self._unrecorded]
        updates = [update for delivery, update in remembered if delivery in group]
        known = {update.delivery_id for update in updates}
        new = tuple(delivery for delivery in group if delivery.id not in known)
        if new:
            updates += self._attempt_group(new, claim)
        self._record(group, updates, claim)
        for update in updates:
            self._count(update.outcome.value)
            if update.outcome is DispatchOutcome.DEAD:
                receiver = group[0].receiver
                log.warning("delivery_dead", receiver=receiver, attempts=update.attempts, reason=update.error)

    def _record(self, group: Group, updates: Sequence[DeliveryUpdate], claim: Fences | None) -> None:
        """Write updates, or remember them and raise. Errors: Fenced, after which nothing is remembered."""
        for update in updates:
            self._unrecorded.pop(update.delivery_id, None)
        try:
            self._outbox.record(updates, fences=claim)
        except Fenced:
            raise
        except Exception:
            deliveries = {delivery.id: delivery for delivery in group}
            self._unrecorded |= {update.delivery_id: (deliveries[update.delivery_id], update) for update in updates}
            raise

    def _attempt_group(self, group: Group, claim: Fences | None) -> list[DeliveryUpdate]:
        try:
            return self._attempt.attempt(group, claim)
        except Fenced:
            raise
        except Exception as error:  # the edge of an attempt: a notification that cannot be rendered is retried
            self._count("error")
            log.exception("delivery_failed", receiver=group[0].receiver)
            failure = DeliveryResult(DeliveryOutcome.RETRY, type(error).__name__)
            return self._attempt.updates_after_failure(group, failure)


def _claim_of(group: Group, fences: Fences | None) -> Fences | None:
    """Return the fences under which a group was read; None: this process owns every run."""
    if fences is None:
        return None
    return {slot: fences[slot] for slot in (slot_of(delivery.run_id) for delivery in group)}

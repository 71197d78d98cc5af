"""The dispatcher: reads due deliveries from the outbox, sends those that are not muted, and records the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock

import structlog
from msgspec import structs

from trmon.domain.alerts.delivery import (
    Delivery,
    DeliveryContext,
    Group,
    RetryPolicy,
    Routes,
    StallMerging,
    Subject,
    group_deliveries,
    merge_stalls,
    repeat_interval_seconds,
)
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    DispatchOutcome,
    MuteReason,
    enrich_notification,
    mute_reason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import Fenced, NotFound
from trmon.domain.findings.configuration import has_times
from trmon.domain.incidents.incident import leading_alerts
from trmon.domain.ownership import Fences, Ownership, slot_of
from trmon.domain.runs.run import Run
from trmon.fleet.changes import PeriodicThread
from trmon.notify.pictures import Pictures
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver
from trmon.store.repositories.deliveries import Outbox

GROUP_WAIT_SECONDS = 0.005
"""Wait between a wake-up and a read of the outbox: alerts of one commit go into one message."""
MAX_DUE = 1000
"""Maximum deliveries per read; a receiver with as many in flight gets no more until it has fewer."""
PER_SUBJECT = 3
"""Deliveries of one alert that may wait at a time: that it fires, who has it, and that it has resolved."""
THREADS_PER_RECEIVER = 2
UNKNOWN_RECEIVER = DeliveryResult(DeliveryOutcome.REFUSED, "no such receiver is configured")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The routes, the retries, and the intervals of reminders and merges.

    `remind_seconds`: after which an unacknowledged page is sent again; `stall_quiet_seconds`: for which a stall waits
    for other runs that stall; `health_rules`: the rules whose alerts the run's incident stands for.
    """

    routes: Routes
    retry: RetryPolicy
    remind_seconds: float
    stall_quiet_seconds: float = 0.0
    health_rules: Callable[[], Collection[str]] = tuple


@dataclass(frozen=True, slots=True)
class OutgoingNotification:
    """A delivery, its notification as it is sent now, and when to send it again (None: never)."""

    delivery: Delivery
    notification: Notification
    repeat_seconds: float | None = None


class DeliveryAttempt:
    """Attempts groups of deliveries; safe to call from several threads."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        policy: DeliveryPolicy,
        pictures: Pictures | None = None,
    ) -> None:
        self._outbox = outbox
        self._pictures = pictures
        self._receivers = receivers
        self._policy = policy

    def attempt(self, group: Group, claim: Fences | None) -> list[DeliveryUpdate]:
        """Return the updates of a group after one attempt; a group has one receiver, and one run or merged ones.

        Args: claim: the fences under which the group was read; None: this process owns every run.
        Errors: Fenced if another process owns one of the runs by now; nothing was sent.
        """
        receiver = self._receivers.get(group[0].receiver)
        if receiver is None:
            return self.updates_after_failure(group, UNKNOWN_RECEIVER)
        by_run: dict[int | None, list[Delivery]] = {}
        for delivery in group:
            by_run.setdefault(delivery.run_id, []).append(delivery)
        now = time.time()
        prepared = [
            one for run_id, deliveries in by_run.items() for one in self._prepare(run_id, deliveries, receiver, now=now)
        ]
        outgoing = [one for one in prepared if isinstance(one, OutgoingNotification)]
        muted = [one for one in prepared if isinstance(one, DeliveryUpdate)]
        sent = self._send(outgoing, receiver, claim, written_at=now) if outgoing else []
        # What a message says is of this time: how its run ends, if that came while it was sent, is still to be told.
        return muted + [replace(update, tried_at=now) for update in sent]

    def updates_after_failure(self, deliveries: Sequence[Delivery], result: DeliveryResult) -> list[DeliveryUpdate]:
        """Return the updates after a failed attempt; deliveries that fail together are due again together."""
        now, may_succeed = time.time(), result.outcome is DeliveryOutcome.RETRY
        return [
            update_after_failure(
                delivery, now=now, error=result.reason, retry=self._policy.retry, may_succeed=may_succeed
            )
            for delivery in deliveries
        ]

    def _prepare(
        self, run_id: int | None, deliveries: Sequence[Delivery], receiver: Receiver, *, now: float
    ) -> list[OutgoingNotification | DeliveryUpdate]:
        """Return the deliveries of one run as they are sent now, or the updates of those that are muted."""
        if run_id is None or deliveries[0].episode is None:
            return [
                OutgoingNotification(delivery, structs.replace(delivery.notification, key=delivery.key))
                for delivery in deliveries
            ]
        try:
            context = self._outbox.delivery_context(run_id, now=now)
        except NotFound:
            return [update_after_mute(delivery, now=now, reason=MuteReason.ENDED) for delivery in deliveries]
        return [self._unless_muted(delivery, receiver, context, now=now) for delivery in deliveries]

    def _unless_muted(
        self, delivery: Delivery, receiver: Receiver, context: DeliveryContext, *, now: float
    ) -> OutgoingNotification | DeliveryUpdate:
        reason = mute_reason(
            delivery,
            context,
            now=now,
            must_repeat=receiver.repeat_seconds is not None,
            is_routed=delivery.receiver in self._policy.routes.of(context.run.owner),
        )
        if reason is not None:
            return update_after_mute(delivery, now=now, reason=reason)
        repeat_seconds = repeat_interval_seconds(
            delivery,
            context.alert_of(delivery),
            remind_seconds=self._policy.remind_seconds,
            receiver_repeat_seconds=receiver.repeat_seconds,
        )
        leading = leading_alerts(context.firing, health_rules=self._policy.health_rules())
        notification = enrich_notification(delivery, context, now=now, leading=leading)
        if notification.alert.is_incident:
            notification = self._with_story(notification, context.run, receiver, now=now)
        return OutgoingNotification(delivery, notification, repeat_seconds)

    def _with_story(self, notification: Notification, run: Run, receiver: Receiver, *, now: float) -> Notification:
        """Return an incident's notification with the time at which it began and, for some receivers, its picture."""
        if self._pictures is None:
            return notification
        try:
            since = notification.alert.since_step
            began_at = self._pictures.began_at(run.id, since) if has_times(run.config) else None
            picture = self._pictures.picture_of(run.id, notification, now=now) if receiver.shows_pictures else None
        except Exception as error:  # noqa: BLE001 - the edge of what only adds to a message: it goes out without
            log.warning("story_not_told", error=type(error).__name__)
            return notification
        return structs.replace(notification, began_at=began_at, picture=picture)

    def _send(
        self, outgoing: Sequence[OutgoingNotification], receiver: Receiver, claim: Fences | None, *, written_at: float
    ) -> list[DeliveryUpdate]:
        deliveries = [one.delivery for one in outgoing]
        try:  # the attempt first: the alert's end is then sent even if this process ends before it records the result
            self._outbox.mark_tried([delivery.id for delivery in deliveries], now=written_at, fences=claim)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a write that may fail: the notification goes out
            log.warning("attempt_not_recorded", receiver=deliveries[0].receiver, error=type(error).__name__)
        result = receiver.deliver([one.notification for one in outgoing], now=time.time())
        if result.outcome is not DeliveryOutcome.DELIVERED:
            return self.updates_after_failure(deliveries, result)
        if result.reason:
            log.warning("delivered_in_part", receiver=deliveries[0].receiver, reason=result.reason)
        now = time.time()
        return [update_after_success(one.delivery, now=now, repeat_seconds=one.repeat_seconds) for one in outgoing]


class Dispatcher(PeriodicThread):
    """Polls the outbox; each receiver has its own threads, so that a slow receiver does not delay the others."""

    def __init__(
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        ownership: Ownership,
        policy: DeliveryPolicy,
        count: Callable[[str], None],
        pictures: Pictures | None = None,
    ) -> None:
        """Args: ownership: of runs, whose deliveries this process sends; count: called with the name of each outcome,
        and with "error".
        """
        super().__init__(
            "dispatcher",
            self._dispatch_due,
            pause_seconds=GROUP_WAIT_SECONDS,
            failure="outbox_unreadable",
            on_failure=lambda: count("error"),
        )
        self._outbox = outbox
        self._ownership = ownership
        self._receivers = receivers
        self._attempt = DeliveryAttempt(outbox, receivers, policy=policy, pictures=pictures)
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

    def close(self) -> None:
        """Stop after the attempts in flight; the other deliveries stay in the outbox."""
        super().close()
        for name, executor in self._executors.items():
            executor.shutdown(cancel_futures=True)
            self._receivers[name].close()

    def _dispatch_due(self) -> None:
        """Read `in_flight` before the outbox, so that a delivery recorded in between is not sent twice."""
        now = time.time()
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
            # The fences under which the group was read; None: this process owns every run.
            slots = (slot_of(delivery.run_id) for delivery in group)
            claim = None if fences is None else {slot: fences[slot] for slot in slots}
            executor = self._executors.get(group[0].receiver)
            if executor is None:
                self._dispatch(group, claim)
                continue
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
        # Written, or remembered if that fails; after Fenced nothing is remembered.
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
        for update in updates:
            self._count(update.outcome.value)
            if update.outcome is DispatchOutcome.DEAD:
                receiver = group[0].receiver
                log.warning("delivery_dead", receiver=receiver, attempts=update.attempts, reason=update.error)

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

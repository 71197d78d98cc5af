"""One attempt to deliver a group: mutes deliveries, sends the others together, and returns the updates."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog
from msgspec import structs

from trmon.domain.alerts.delivery import Delivery, DeliveryContext, Group, RetryPolicy, Routes, repeat_interval_seconds
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    MuteReason,
    enrich_notification,
    mute_reason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import Fenced, NotFound
from trmon.domain.ports import Fences
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, Receiver
from trmon.store.repositories.deliveries import Outbox

log = structlog.get_logger(__name__)

UNKNOWN_RECEIVER = DeliveryResult(DeliveryOutcome.REFUSED, "no such receiver is configured")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The routes, the retries, and the intervals of reminders and merges.

    `remind_seconds`: after which an unacknowledged page is sent again; `stall_quiet_seconds`: for which a stall waits
    for other runs that stall.
    """

    routes: Routes
    retry: RetryPolicy
    remind_seconds: float
    stall_quiet_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OutgoingNotification:
    """A delivery, its notification as it is sent now, and when to send it again (None: never)."""

    delivery: Delivery
    notification: Notification
    repeat_seconds: float | None = None


class DeliveryAttempt:
    """Attempts groups of deliveries; safe to call from several threads."""

    def __init__(self, outbox: Outbox, receivers: Mapping[str, Receiver], *, policy: DeliveryPolicy) -> None:
        self._outbox = outbox
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
        return muted + (self._send(outgoing, receiver, claim) if outgoing else [])

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
            return [_without_run(delivery) for delivery in deliveries]
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
        return self._outgoing(delivery, receiver, context, now=now)

    def _outgoing(
        self, delivery: Delivery, receiver: Receiver, context: DeliveryContext, *, now: float
    ) -> OutgoingNotification:
        repeat_seconds = repeat_interval_seconds(
            delivery,
            context.alert_of(delivery),
            remind_seconds=self._policy.remind_seconds,
            receiver_repeat_seconds=receiver.repeat_seconds,
        )
        return OutgoingNotification(delivery, enrich_notification(delivery, context, now=now), repeat_seconds)

    def _send(
        self, outgoing: Sequence[OutgoingNotification], receiver: Receiver, claim: Fences | None
    ) -> list[DeliveryUpdate]:
        self._mark_tried([one.delivery for one in outgoing], claim)
        result = receiver.deliver([one.notification for one in outgoing], now=time.time())
        if result.outcome is not DeliveryOutcome.DELIVERED:
            return self.updates_after_failure([one.delivery for one in outgoing], result)
        if result.reason:
            log.warning("delivered_in_part", receiver=outgoing[0].delivery.receiver, reason=result.reason)
        now = time.time()
        return [update_after_success(one.delivery, now=now, repeat_seconds=one.repeat_seconds) for one in outgoing]

    def _mark_tried(self, deliveries: Sequence[Delivery], claim: Fences | None) -> None:
        """Record the attempt, so that the alert's end is sent even if this process ends before it records the result.

        Errors: Fenced. If the database refuses it otherwise, the notification is more important.
        """
        try:
            self._outbox.mark_tried([delivery.id for delivery in deliveries], now=time.time(), fences=claim)
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of a write that may fail: the notification goes out
            log.warning("attempt_not_recorded", receiver=deliveries[0].receiver, error=type(error).__name__)


def _without_run(delivery: Delivery) -> OutgoingNotification:
    return OutgoingNotification(delivery, structs.replace(delivery.notification, key=delivery.key))

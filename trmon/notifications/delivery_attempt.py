"""One attempt to deliver a group: mutes deliveries, sends the others together, and returns the updates."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.delivery_context import DeliveryContext
from trmon.domain.alerts.delivery_update import (
    DeliveryUpdate,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.alerts.enrichment import enrich_notification
from trmon.domain.alerts.grouping import Group
from trmon.domain.alerts.muting import MuteReason, mute_reason
from trmon.domain.alerts.notification import Notification
from trmon.domain.alerts.repeat_interval import repeat_interval_seconds
from trmon.domain.alerts.retry import RetryPolicy
from trmon.domain.alerts.routing import Routes
from trmon.domain.model.errors import NotFound
from trmon.notifications.delivery_queue import DeliveryQueue
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult, Receiver

UNKNOWN_RECEIVER = DeliveryResult(DeliveryOutcome.REFUSED, "no such receiver is configured")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The routes, the retries, and the interval after which an unacknowledged page is sent again."""

    routes: Routes
    retry: RetryPolicy
    remind_seconds: float


@dataclass(frozen=True, slots=True)
class OutgoingNotification:
    """A delivery, its notification as it is sent now, and when to send it again (None: never)."""

    delivery: Delivery
    notification: Notification
    repeat_seconds: float | None = None


class DeliveryAttempt:
    """Attempts groups of deliveries; safe to call from several threads."""

    def __init__(self, outbox: DeliveryQueue, receivers: Mapping[str, Receiver], *, policy: DeliveryPolicy) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._policy = policy

    def attempt(self, group: Group) -> list[DeliveryUpdate]:
        """Return the updates of a group after one attempt; a group has one receiver and one run."""
        receiver, run_id = self._receivers.get(group[0].receiver), group[0].run_id
        if receiver is None:
            return self.updates_after_failure(group, UNKNOWN_RECEIVER)
        if run_id is None or group[0].episode is None:
            return self._send([_without_run(delivery) for delivery in group], receiver)
        now = time.time()
        try:
            context = self._outbox.delivery_context(run_id, now=now)
        except NotFound:
            return [update_after_mute(delivery, now=now, reason=MuteReason.ENDED) for delivery in group]
        return self._attempt_unmuted(group, receiver, context, now=now)

    def updates_after_failure(self, deliveries: Sequence[Delivery], result: DeliveryResult) -> list[DeliveryUpdate]:
        """Return the updates after a failed attempt; deliveries that fail together are due again together."""
        now, may_succeed = time.time(), result.outcome is DeliveryOutcome.RETRY
        return [
            update_after_failure(
                delivery, now=now, error=result.reason, retry=self._policy.retry, may_succeed=may_succeed
            )
            for delivery in deliveries
        ]

    def _attempt_unmuted(
        self, group: Group, receiver: Receiver, context: DeliveryContext, *, now: float
    ) -> list[DeliveryUpdate]:
        is_routed = group[0].receiver in self._policy.routes.of(context.run.owner)
        must_repeat = receiver.repeat_seconds is not None
        muted, outgoing = [], []
        for delivery in group:
            reason = mute_reason(delivery, context, now=now, must_repeat=must_repeat, is_routed=is_routed)
            if reason is not None:
                muted.append(update_after_mute(delivery, now=now, reason=reason))
            else:
                outgoing.append(self._outgoing(delivery, receiver, context, now=now))
        return muted + (self._send(outgoing, receiver) if outgoing else [])

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

    def _send(self, outgoing: Sequence[OutgoingNotification], receiver: Receiver) -> list[DeliveryUpdate]:
        result = receiver.deliver([one.notification for one in outgoing], now=time.time())
        if result.outcome is not DeliveryOutcome.DELIVERED:
            return self.updates_after_failure([one.delivery for one in outgoing], result)
        now = time.time()
        return [update_after_success(one.delivery, now=now, repeat_seconds=one.repeat_seconds) for one in outgoing]


def _without_run(delivery: Delivery) -> OutgoingNotification:
    return OutgoingNotification(delivery, structs.replace(delivery.notification, key=delivery.key))

"""Telling: what becomes of deliveries whose time has come, from whether they are told to what their receiver said."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import structlog

from trmon.domain.alerts import settlement
from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.grouping import Group
from trmon.domain.alerts.muting import DeliveryContext, MuteReason, mute_reason
from trmon.domain.alerts.routing import Routes
from trmon.domain.alerts.settlement import RetryPolicy, Settlement, SettlementKind
from trmon.domain.alerts.telling import present_delivery, resend_after_seconds
from trmon.domain.model.errors import Fenced, NotFound
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult, Receiver

UNKNOWN_RECEIVER = DeliveryResult(DeliveryOutcome.REFUSED, "no such receiver is configured")

Told = tuple[Delivery, float | None]
"""A delivery, and the seconds after which it is told again if it is."""

log = structlog.get_logger(__name__)


class DeliveryQueue(Protocol):
    """What the teller asks of the store."""

    def due(self, *, now: float, limit: int, without: Collection[str]) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first, without those to some receivers."""

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Note that these, of the last look, are going to be told; whatever is taken is told by one at a time."""

    def keeps(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether what was taken is still this process's to tell; if not, it is let go of."""

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return what is true of a run now. Errors: NotFound."""

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Note what became of deliveries; it is durable when the call returns."""


class Dispatcher:
    """Tells one group of deliveries at a time; may be called from many threads."""

    def __init__(
        self,
        outbox: DeliveryQueue,
        receivers: Mapping[str, Receiver],
        *,
        tries: RetryPolicy,
        routes: Routes,
        remind_seconds: float,
        count: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._tries = tries
        self._routes = routes
        self._remind_seconds = remind_seconds
        self._count = count
        self._unsettled: dict[int, tuple[Delivery, Settlement]] = {}

    def tell(self, group: Group) -> None:
        """Mute deliveries of a group, try the others together, and note what became of each.

        Whoever was asked is not asked again where that could only not be written: the next time it is written alone.
        What became another process's while it waited for its turn is left to that one.
        """
        if not self._outbox.keeps(group):
            return
        known = [self._unsettled[one.id] for one in group if one.id in self._unsettled]
        asked = {one.id: settled for one, settled in known if one in group}
        new = tuple(one for one in group if one.id not in asked)
        settled = [*asked.values(), *(self._asked(new) if new else [])]
        self._settle(group, settled)
        for one in settled:
            self._count(one.outcome.value)
            if one.outcome is SettlementKind.DEAD:
                log.warning("delivery_dead", receiver=group[0].receiver, attempts=one.attempts, reason=one.error)

    def _asked(self, group: Group) -> list[Settlement]:
        try:
            return self._tell(group)
        except Exception as error:  # the edge of a delivery: one that cannot be said is seen, and is tried again
            self._count("error")
            log.exception("delivery_failed", receiver=group[0].receiver)
            broken = DeliveryResult(DeliveryOutcome.RETRY, type(error).__name__)
            return self._settled([(one, None) for one in group], broken)

    def _settle(self, group: Group, settled: Sequence[Settlement]) -> None:
        for one in settled:
            self._unsettled.pop(one.delivery_id, None)
        try:
            self._outbox.settle(settled)
        except Fenced:
            raise
        except Exception:
            deliveries = {one.id: one for one in group}
            self._unsettled.update({one.delivery_id: (deliveries[one.delivery_id], one) for one in settled})
            raise

    def _tell(self, group: Group) -> list[Settlement]:
        receiver, run_id = self._receivers.get(group[0].receiver), group[0].run_id
        if receiver is None:
            return self._settled([(one, None) for one in group], UNKNOWN_RECEIVER)
        if run_id is None or group[0].episode is None:
            return self._try([(one, None) for one in group], receiver)
        now = time.time()
        try:
            delivery_context = self._outbox.delivery_context(run_id, now=now)
        except NotFound:
            return [settlement.settle_muted(one, now=now, reason=MuteReason.ENDED) for one in group]
        return self._tell_of(delivery_context, group, receiver, now=now)

    def _tell_of(
        self, delivery_context: DeliveryContext, group: Group, receiver: Receiver, *, now: float
    ) -> list[Settlement]:
        quiet, loud = [], []
        is_routed = group[0].receiver in self._routes.of(delivery_context.run.owner)
        forgets = receiver.repeat_seconds is not None
        for one in group:
            reason = mute_reason(one, delivery_context, now=now, forgets=forgets, is_routed=is_routed)
            if reason is not None:
                quiet.append(settlement.settle_muted(one, now=now, reason=reason))
                continue
            again = resend_after_seconds(
                one, delivery_context, remind_seconds=self._remind_seconds, repeat_seconds=receiver.repeat_seconds
            )
            loud.append((present_delivery(one, delivery_context, now=now), again))
        return quiet + (self._try(loud, receiver) if loud else [])

    def _try(self, loud: Sequence[Told], receiver: Receiver) -> list[Settlement]:
        return self._settled(loud, receiver.deliver([one for one, _ in loud], now=time.time()))

    def _settled(self, tried: Sequence[Told], result: DeliveryResult) -> list[Settlement]:
        """What failed together is due again together."""
        now = time.time()
        if result.outcome is DeliveryOutcome.DELIVERED:
            return [settlement.settle_sent(one, now=now, again_after_seconds=again) for one, again in tried]
        may_succeed = result.outcome is DeliveryOutcome.RETRY
        return [
            settlement.settle_failed(one, now=now, error=result.reason, tries=self._tries, may_succeed=may_succeed)
            for one, _ in tried
        ]

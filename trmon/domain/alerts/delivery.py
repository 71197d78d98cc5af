"""Deliveries: one notification to one receiver, as the outbox stores it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Notification


class DeliveryState(Enum):
    """The state of a delivery.

    HELD is muted until its reason passes. STANDING was delivered and is sent again while its alert fires. MUTED was
    never sent and has a reason.
    """

    DUE = "due"
    HELD = "held"
    STANDING = "standing"
    DELIVERED = "delivered"
    MUTED = "muted"
    DEAD = "dead"


Subject = tuple[str, str | int]
"""A receiver, and the alert episode of a delivery, or the delivery's id if it has no episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification in the outbox, for one receiver; `dedup_key` is unique.

    `made_at` is the time of the transition, `told_state` the state that the notification reports, `rounds` the number
    of times it was delivered. A delivery without an episode is never muted.
    """

    id: int
    receiver: str
    dedup_key: str
    notification: Notification
    attempts: int = 0
    state: DeliveryState = DeliveryState.DUE
    due_at: float = 0.0
    made_at: float = 0.0
    run_id: int | None = None
    episode: str | None = None
    told_state: AlertState = AlertState.FIRING
    rounds: int = 0

    @property
    def subject(self) -> Subject:
        """The receiver and the alert episode: deliveries of one subject are sent one after the other."""
        return self.receiver, self.id if self.episode is None else self.episode

    @property
    def key(self) -> str:
        """The idempotency key of the next attempt: a retry repeats it, a reminder gets a new one."""
        return f"{self.dedup_key}:{self.rounds}" if self.rounds else self.dedup_key

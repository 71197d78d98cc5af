"""The port of every receiver, and the names of what becomes of a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from trmon.domain.alerts.alert import Delivery


class DeliveryOutcome(Enum):
    """What became of one try."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What became of one try, and why; the reason never holds the receiver's URL, which may be a secret.

    RETRY may succeed later; REFUSED never will: the receiver or our own rules do not want it.
    """

    outcome: DeliveryOutcome
    reason: str = ""


class Receiver(Protocol):
    """Somewhere deliveries go."""

    @property
    def repeat_seconds(self) -> float | None:
        """How often a firing alert is sent again, for receivers that forget what they do not hear of."""

    @property
    def is_grouping(self) -> bool:
        """Whether one message tells of several alerts of a run; else each is delivered by itself."""

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
        """Try deliveries of one run together; blocks for a bounded time, never raises for what the other side does."""

    def close(self) -> None:
        """Let go of connections."""

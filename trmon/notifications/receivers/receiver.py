"""The port that every receiver implements, and the result of a delivery attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from trmon.domain.alerts.notification import Notification


class DeliveryOutcome(Enum):
    """The outcome of one attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of one attempt and its reason, which never contains the receiver's URL: that may be a secret.

    RETRY may succeed later. REFUSED cannot: the receiver rejects the request, or our own checks do. DELIVERED with a
    reason reached some recipients of several.
    """

    outcome: DeliveryOutcome
    reason: str = ""


class Receiver(Protocol):
    """A service that takes notifications."""

    @property
    def repeat_seconds(self) -> float | None:
        """How often a firing alert is sent again, for receivers that drop an alert which is not; None for others."""

    @property
    def is_grouping(self) -> bool:
        """Whether one message may hold several alerts of a run; otherwise each alert is delivered alone."""

    @property
    def merges_runs(self) -> bool:
        """Whether one message may report the same rule on several runs; False where each alert has its own identity."""

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        """Send notifications of one run, or merged ones of several, together.

        Blocks for a bounded time and returns network errors as a result.
        """

    def close(self) -> None:
        """Close the connections."""

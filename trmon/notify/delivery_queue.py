"""The port between the dispatcher and the outbox."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from trmon.domain.alerts.delivery import Delivery, DeliveryContext
from trmon.domain.alerts.muting import DeliveryUpdate


class DeliveryQueue(Protocol):
    """The outbox as the dispatcher uses it."""

    def due(self, *, now: float, limit: int, exclude_receivers: Collection[str]) -> list[Delivery]:
        """Return the deliveries that are due, oldest first, without those to some receivers."""

    def claim(self, deliveries: Sequence[Delivery]) -> None:
        """Claim deliveries that the last `due` returned, before they wait for their receiver."""

    def still_owns(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether this process may still send claimed deliveries; if not, drop the claims."""

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return the state of a run. Errors: NotFound."""

    def mark_tried(self, deliveries: Sequence[Delivery], *, now: float) -> None:
        """Record that deliveries are about to be sent; it is durable when the call returns. Errors: Fenced."""

    def record(self, updates: Sequence[DeliveryUpdate]) -> None:
        """Write updates of deliveries; they are durable when the call returns. Errors: Fenced."""

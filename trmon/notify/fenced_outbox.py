"""The outbox of one process of several: it sends and records only deliveries of the runs that it owns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trmon.domain.alerts.delivery import Delivery, DeliveryContext
from trmon.domain.alerts.muting import DeliveryUpdate
from trmon.domain.errors import Fenced
from trmon.domain.ports import Fences, Ownership, slot_of
from trmon.store.repositories.deliveries import Outbox


class FencedOutbox:
    """Implements `DeliveryQueue`: a delivery is sent and recorded only if its slot was owned since it was read."""

    def __init__(self, outbox: Outbox, ownership: Ownership) -> None:
        self._outbox = outbox
        self._ownership = ownership
        self._fences_at_read: Fences | None = None
        self._claims: dict[int, tuple[int, int]] = {}

    def due(self, *, now: float, limit: int, exclude_receivers: Collection[str] = ()) -> list[Delivery]:
        """Return the deliveries of owned runs that are due, oldest first."""
        self._fences_at_read = self._ownership.fences()
        return self._outbox.due(now=now, limit=limit, slots=self._fences_at_read, exclude_receivers=exclude_receivers)

    def claim(self, deliveries: Sequence[Delivery]) -> None:
        """Claim deliveries that the last `due` returned, under the fences of that read."""
        if self._fences_at_read is not None:
            slots = {delivery.id: slot_of(delivery.run_id) for delivery in deliveries}
            self._claims.update({id_: (slot, self._fences_at_read[slot]) for id_, slot in slots.items()})

    def still_owns(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether this process may still send claimed deliveries; if not, drop the claims."""
        fences = self._ownership.fences()
        if fences is None or all(self._is_owned(delivery.id, fences) for delivery in deliveries):
            return True
        self._drop(deliveries)
        return False

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return the state of a run. Errors: NotFound."""
        return self._outbox.delivery_context(run_id, now=now)

    def mark_tried(self, deliveries: Sequence[Delivery], *, now: float) -> None:
        """Record that claimed deliveries are about to be sent, or drop the claims. Errors: Fenced."""
        claims = [self._claims.get(delivery.id) for delivery in deliveries]
        try:
            self._outbox.mark_tried([delivery.id for delivery in deliveries], now=now, fences=_fences_of(claims))
        except Fenced:
            self._drop(deliveries)
            raise

    def record(self, updates: Sequence[DeliveryUpdate]) -> None:
        """Write updates of deliveries; they are durable when the call returns. Errors: Fenced."""
        claims = [self._claims.pop(update.delivery_id, None) for update in updates]
        self._outbox.record(updates, fences=_fences_of(claims))

    def _drop(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._claims.pop(delivery.id, None)

    def _is_owned(self, delivery_id: int, fences: Fences) -> bool:
        slot, fence = self._claims[delivery_id]
        return fences.get(slot) == fence


def _fences_of(claims: Iterable[tuple[int, int] | None]) -> Fences:
    """Return the fence of each slot of some claims; None: the process owns every slot."""
    return dict(claim for claim in claims if claim is not None)

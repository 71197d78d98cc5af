"""The outbox of one process: deliveries of the runs that are its own, told by nobody else meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.muting import DeliveryContext
from trmon.domain.alerts.settlement import Settlement
from trmon.domain.model.slots import Fences, slot_of
from trmon.domain.ports import Ownership
from trmon.store.repositories.outbox import Outbox


class FencedOutbox:
    """Implements `DeliveryQueue`: sends and settles only what it has owned since it was read."""

    def __init__(self, outbox: Outbox, ownership: Ownership) -> None:
        self._outbox = outbox
        self._ownership = ownership
        self._looked: Fences | None = None
        self._fences: dict[int, tuple[int, int]] = {}

    def due(self, *, now: float, limit: int, without: Collection[str] = ()) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first."""
        self._looked = self._ownership.fences()
        return self._outbox.due(now=now, limit=limit, slots=self._looked, without=without)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Note that these, of the last look, are going to be told; whatever is taken is told by one at a time."""
        if self._looked is not None:
            slots = {delivery.id: slot_of(delivery.run_id) for delivery in deliveries}
            self._fences.update({id_: (slot, self._looked[slot]) for id_, slot in slots.items()})

    def keeps(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether what was taken is still this process's to tell; if not, it is let go of."""
        fences = self._ownership.fences()
        if fences is None or all(self._is_held(delivery.id, fences) for delivery in deliveries):
            return True
        for delivery in deliveries:
            self._fences.pop(delivery.id, None)
        return False

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return what is true of a run now. Errors: NotFound."""
        return self._outbox.delivery_context(run_id, now=now)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Note what became of deliveries; it is durable when the call returns. Errors: Fenced."""
        held = [self._fences.pop(settlement.delivery_id, None) for settlement in settlements]
        self._outbox.settle(settlements, fences=dict(fence for fence in held if fence is not None))

    def _is_held(self, delivery_id: int, fences: Fences) -> bool:
        slot, fence = self._fences[delivery_id]
        return fences.get(slot) == fence

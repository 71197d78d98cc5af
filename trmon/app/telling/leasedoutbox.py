"""The outbox of one process: deliveries of the runs that are its own, told by nobody else meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.muting import Situation
from trmon.domain.alerts.settlement import Settlement
from trmon.domain.leases import slot_of
from trmon.domain.ports import Ownership
from trmon.store.outbox import Outbox


class LeasedOutbox:
    """Implements trmon.app.telling.teller.Outbox: what is settled is written only while the run is still its own."""

    def __init__(self, outbox: Outbox, ownership: Ownership) -> None:
        self._outbox = outbox
        self._ownership = ownership
        self._fences: dict[int, tuple[int, int]] = {}

    def due(self, *, now: float, limit: int) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first."""
        fences = self._ownership.fences()
        due = self._outbox.due(now=now, limit=limit, slots=fences)
        if fences is not None:
            slots = {delivery.id: slot_of(delivery.run_id) for delivery in due}
            self._fences.update({id_: (slot, fences[slot]) for id_, slot in slots.items()})
        return due

    def situation(self, run_id: int, *, now: float) -> Situation:
        """Return what is true of a run now. Errors: NotFound."""
        return self._outbox.situation(run_id, now=now)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Note what became of deliveries; it is durable when the call returns. Errors: Fenced."""
        held = [self._fences.pop(settlement.delivery_id, None) for settlement in settlements]
        self._outbox.settle(settlements, fences=dict(fence for fence in held if fence is not None))

"""Records delivery results in the outbox, and remembers those that could not be written."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.domain.alerts.delivery import Delivery, Group
from trmon.domain.alerts.muting import DeliveryUpdate
from trmon.domain.errors import Fenced
from trmon.notify.delivery_queue import DeliveryQueue


class ResultRecorder:
    """Writes updates; after a failed write the next attempt repeats the write, and does not send again."""

    def __init__(self, outbox: DeliveryQueue) -> None:
        self._outbox = outbox
        self._unrecorded: dict[int, tuple[Delivery, DeliveryUpdate]] = {}

    def unrecorded_updates(self, group: Group) -> list[DeliveryUpdate]:
        """Return the remembered updates of deliveries that have not changed since."""
        remembered = [self._unrecorded[delivery.id] for delivery in group if delivery.id in self._unrecorded]
        return [update for delivery, update in remembered if delivery in group]

    def record(self, group: Group, updates: Sequence[DeliveryUpdate]) -> None:
        """Write updates, or remember them and raise. Errors: Fenced, after which nothing is remembered."""
        for update in updates:
            self._unrecorded.pop(update.delivery_id, None)
        try:
            self._outbox.record(updates)
        except Fenced:
            raise
        except Exception:
            deliveries = {delivery.id: delivery for delivery in group}
            self._unrecorded |= {update.delivery_id: (deliveries[update.delivery_id], update) for update in updates}
            raise

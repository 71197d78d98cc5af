"""Grouping: the due deliveries of one run to one receiver become one message."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trmon.domain.alerts.delivery import Delivery, Subject

Group = tuple[Delivery, ...]
"""Deliveries of one run to one receiver, of different alerts."""


def group_deliveries(
    deliveries: Iterable[Delivery], *, in_flight: Collection[Subject], grouping_receivers: Collection[str]
) -> list[Group]:
    """Return the groups to send now, in the order of their first deliveries.

    Each alert has at most one delivery in flight; the next one waits for a later call.
    Args: in_flight: the subjects that are being sent; grouping_receivers: those that take several alerts per message.
    """
    groups: dict[object, list[Delivery]] = {}
    taken = set(in_flight)
    for delivery in deliveries:
        if delivery.subject in taken:
            continue
        taken.add(delivery.subject)
        is_grouped = delivery.receiver in grouping_receivers and delivery.run_id is not None
        group_key = (delivery.receiver, delivery.run_id) if is_grouped else delivery.subject
        groups.setdefault((is_grouped, group_key), []).append(delivery)
    return [tuple(group) for group in groups.values()]

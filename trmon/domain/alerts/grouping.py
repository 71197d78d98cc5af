"""Grouping: what is due together of one run goes to one receiver as one message."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trmon.domain.alerts.alert import Delivery, Subject

Group = tuple[Delivery, ...]
"""Deliveries of one run to one receiver, of different alerts."""


def group_deliveries(
    deliveries: Iterable[Delivery], *, busy: Collection[Subject], together: Collection[str]
) -> list[Group]:
    """Return what is to be told now, in the order of the first delivery of each group.

    Of one alert one delivery at a time is told: its next one waits for another look.
    Args: busy: what is being told of; together: the receivers that take several alerts in a message.
    """
    found: dict[object, list[Delivery]] = {}
    taken = set(busy)
    for delivery in deliveries:
        if delivery.subject in taken:
            continue
        taken.add(delivery.subject)
        is_grouped = delivery.receiver in together and delivery.run_id is not None
        place = (delivery.receiver, delivery.run_id) if is_grouped else delivery.subject
        found.setdefault((is_grouped, place), []).append(delivery)
    return [tuple(group) for group in found.values()]

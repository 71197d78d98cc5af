"""Merging of stalls: the `stalled` alerts of several runs to one receiver become one message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trmon.domain.alerts.delivery import Delivery, DeliveryState, Subject
from trmon.domain.alerts.grouping import Group

MERGED_RULE = "stalled"
MIN_RUNS = 3
MAX_WAIT_SECONDS = 55.0
"""Longest wait of a stall for others, so that with the polls in between it is told within a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallMerging:
    """The receivers whose stalls are merged, and for how long after the newest one they wait for more."""

    receivers: Collection[str]
    quiet_seconds: float


@dataclass(frozen=True, slots=True)
class MergedStalls:
    """The groups to send now, each of several runs, and the deliveries that wait for other runs."""

    groups: tuple[Group, ...] = ()
    waiting: tuple[Delivery, ...] = ()

    @property
    def subjects(self) -> frozenset[Subject]:
        """The subjects of all of them."""
        return frozenset(delivery.subject for group in (*self.groups, self.waiting) for delivery in group)


def merge_stalls(
    deliveries: Iterable[Delivery], *, in_flight: Collection[Subject], merging: StallMerging, now: float
) -> MergedStalls:
    """Return the stalls of at least three runs as one group per receiver and state, and those that still wait.

    Retries, reminders and deliveries that were held do not wait, but are merged with what is due at the same time.
    """
    groups: dict[object, list[Delivery]] = {}
    taken = set(in_flight)
    for delivery in deliveries:
        if delivery.subject not in taken:
            taken.add(delivery.subject)
            if _is_stall(delivery) and delivery.receiver in merging.receivers:
                groups.setdefault((delivery.receiver, delivery.told_state), []).append(delivery)
    merged: list[Group] = []
    waiting: list[Delivery] = []
    for group in groups.values():
        new = [delivery for delivery in group if _is_new(delivery)]
        if _must_wait(new, quiet_seconds=merging.quiet_seconds, now=now):
            waiting += new
            group = [delivery for delivery in group if not _is_new(delivery)]
        if len({delivery.run_id for delivery in group}) >= MIN_RUNS:
            merged.append(tuple(group))
    return MergedStalls(tuple(merged), tuple(waiting))


def _is_stall(delivery: Delivery) -> bool:
    has_run = delivery.run_id is not None and delivery.episode is not None
    return has_run and delivery.notification.alert.rule == MERGED_RULE


def _is_new(delivery: Delivery) -> bool:
    return delivery.state is DeliveryState.DUE and not delivery.attempts and not delivery.rounds


def _must_wait(new: Sequence[Delivery], *, quiet_seconds: float, now: float) -> bool:
    if not new:
        return False
    made = [delivery.made_at for delivery in new]
    return now < min(max(made) + quiet_seconds, min(made) + MAX_WAIT_SECONDS)

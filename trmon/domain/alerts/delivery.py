"""Deliveries: a notification to a receiver in the outbox, its context, retries, routing, grouping and merged stalls."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from msgspec import structs

from trmon.domain.alerts.alert import (
    Acknowledgement,
    Alert,
    AlertEvent,
    AlertState,
    FlapState,
    TransitionReason,
    flap_state,
    transition_event,
)
from trmon.domain.alerts.notification import Notification, build_notification
from trmon.domain.alerts.silences import Silence
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import Severity


class DeliveryState(Enum):
    """The state of a delivery.

    HELD is muted until its reason passes. STANDING was delivered and is sent again while its alert fires. MUTED was
    never sent and has a reason.
    """

    DUE = "due"
    HELD = "held"
    STANDING = "standing"
    DELIVERED = "delivered"
    MUTED = "muted"
    DEAD = "dead"


Subject = tuple[str, str | int]
"""A receiver, and the alert episode of a delivery, or the delivery's id if it has no episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification in the outbox, for one receiver; `dedup_key` is unique.

    `made_at` is the time of the transition, `told_state` the state that the notification reports, `rounds` the number
    of times it was delivered. A delivery without an episode is never muted.
    """

    id: int
    receiver: str
    dedup_key: str
    notification: Notification
    attempts: int = 0
    state: DeliveryState = DeliveryState.DUE
    due_at: float = 0.0
    made_at: float = 0.0
    run_id: int | None = None
    episode: str | None = None
    told_state: AlertState = AlertState.FIRING
    rounds: int = 0

    @classmethod
    def new(
        cls, told: Notification, receiver: str, *, key: str, now: float, run_id: int | None, episode: str | None
    ) -> Delivery:
        """Return a delivery that is due now. Args: key: unique among the deliveries to the receiver."""
        return cls(
            id=0,
            receiver=receiver,
            dedup_key=f"{receiver}:{key}",
            notification=told,
            due_at=now,
            made_at=now,
            run_id=run_id,
            episode=episode,
            told_state=told.status,
        )

    @property
    def subject(self) -> Subject:
        """The receiver and the alert episode: deliveries of one subject are sent one after the other."""
        return self.receiver, self.id if self.episode is None else self.episode

    @property
    def is_acknowledgement(self) -> bool:
        """Whether it tells who has the alert."""
        return self.notification.is_acknowledgement

    @property
    def key(self) -> str:
        """The idempotency key of the next attempt: a retry repeats it, a reminder gets a new one."""
        return f"{self.dedup_key}:{self.rounds}" if self.rounds else self.dedup_key


def acknowledging_delivery(fired: Delivery, ack: Acknowledgement, *, now: float) -> Delivery:
    """Return the delivery that tells the receiver of `fired` who has the alert."""
    reason, key = TransitionReason.ACKNOWLEDGED.value, f"{fired.episode}:acknowledged:{ack.at:.3f}"
    alert = structs.replace(fired.notification.alert, at=ack.at)
    told = structs.replace(fired.notification, reason=reason, alert=alert, ack=ack, ended="")
    return Delivery.new(told, fired.receiver, key=key, now=now, run_id=fired.run_id, episode=fired.episode)


def closing_delivery(fired: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    """Return the delivery that resolves an alert for the receiver of `fired`, under the run's name in it.

    It has no run, so that it outlives the run's rows, and keeps its episode, so that it is sent after `fired`.
    Args: reason: DELETED or RENAMED.
    """
    resolved, alert = AlertState.RESOLVED, structs.replace(fired.notification.alert, at=now)
    key = f"{fired.episode}:{reason.name.lower()}:{fired.notification.run.run}:{resolved.value}"
    told = structs.replace(fired.notification, status=resolved, reason=reason.value, alert=alert, url=None)
    return Delivery.new(told, fired.receiver, key=key, now=now, run_id=None, episode=fired.episode)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryContext:
    """The run of a delivery, its alerts, and what its receivers already know.

    `alerts`: those that fire and those that ended within the last minute; `acked`: who has which episode; `tried`:
    when the firing notification of each (receiver, episode) was attempted, which may have arrived; `waiting`: those
    whose firing notification is still due; `events`: the newest transitions of the run.
    """

    run: Run
    alerts: tuple[Alert, ...]
    tried: Mapping[tuple[str, str], float]
    waiting: frozenset[tuple[str, str]] = frozenset()
    acked: Mapping[str, Acknowledgement] = field(default_factory=dict)
    silences: tuple[Silence, ...] = ()
    events: tuple[AlertEvent, ...] = ()

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.state is AlertState.FIRING)

    def alert_of(self, delivery: Delivery) -> Alert | None:
        """Return the alert of a delivery; None if its episode ended, also if a new one started at the same step."""
        since_at = delivery.notification.alert.since_at
        return next((a for a in self.alerts if a.episode == delivery.episode and a.since_at == since_at), None)

    def is_superseded(self, delivery: Delivery) -> bool:
        """Return whether the incident of a delivery was sent again since."""
        alert = delivery.notification.alert
        return alert.is_incident and any(
            event.identity == alert.identity and event.state is AlertState.FIRING and event.at > alert.at
            for event in self.events
        )

    def ends_untold(self, delivery: Delivery) -> bool:
        """Return whether a run finished with its incident before the incident was sent to the receiver."""
        alert, subject = self.alert_of(delivery), (delivery.receiver, delivery.episode or "")
        return alert is not None and bool(alert.run_ended) and subject not in self.tried

    def was_told_after_end(self, delivery: Delivery) -> bool:
        """Return whether the incident was first sent to the receiver of its end after the run had finished."""
        has_finished = delivery.notification.alert.is_incident and self.run.state is RunState.FINISHED
        told_at = self.tried.get((delivery.receiver, delivery.episode or ""), math.inf)
        return has_finished and told_at > delivery.made_at

    def flap_state_of(self, delivery: Delivery) -> FlapState:
        """Return whether the alert flaps at the transition of a delivery; an incident is damped and never does."""
        notification = delivery.notification
        if notification.alert.is_incident:
            return FlapState.STABLE
        place = (notification.alert.identity, notification.run.attempt_id)
        step = notification.step
        steps = (event.step for event in self.events if (event.identity, event.attempt_id) == place)
        return flap_state(steps, at_step=step, now_step=max(self.run.last_step or 0, step))


MAX_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts, and the wait between them: it doubles from `backoff_seconds` up to ten minutes."""

    max_attempts: int
    backoff_seconds: float

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after a number of failed attempts, from 1."""
        return float(min(self.backoff_seconds * 2.0 ** min(attempts - 1, 32), MAX_BACKOFF_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Receivers by owner; an owner without a route, and a run without an owner, get all receivers."""

    receivers: tuple[str, ...] = ()
    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, owner: str | None) -> tuple[str, ...]:
        """Return the receivers for an owner's runs."""
        return self.by_owner.get(owner, self.receivers) if owner is not None else self.receivers


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """The routes, the service's public URL, and the time at which a run gets another owner.

    `health_rules` are the rules whose alerts the run's incident replaces.
    """

    routes: Routes
    public_url: str | None
    now: float
    health_rules: frozenset[str] = frozenset()

    def deliveries(self, alerts: Iterable[Alert], *, before: Run, after: Run) -> tuple[Delivery, ...]:
        """Return deliveries of the firing alerts to the receivers that only the new owner has.

        Receivers that only the former owner had get no more reminders, but still get the resolve notification of an
        alert that they were notified of.
        """
        former = self.routes.of(before.owner)
        added = [receiver for receiver in self.routes.of(after.owner) if receiver not in former]
        sent = (alert for alert in alerts if alert.rule not in self.health_rules)
        firing = [a for a in sent if a.state is AlertState.FIRING and a.severity is not Severity.INFO]
        reason, now = TransitionReason.HANDED_OVER, self.now
        found: list[Delivery] = []
        for alert in firing:
            event, run_id, episode = transition_event(alert), alert.run_id, alert.episode
            told = build_notification(alert, event, reason=reason, run=after, public_url=self.public_url)
            key = f"{episode}:{after.owner}:{alert.state.value}"
            found += [Delivery.new(told, to, key=key, now=now, run_id=run_id, episode=episode) for to in added]
        return tuple(found)


Group = tuple[Delivery, ...]
"""Deliveries of one run to one receiver, of different alerts."""


def group_deliveries(
    deliveries: Iterable[Delivery], *, in_flight: Collection[Subject], grouping_receivers: Collection[str]
) -> list[Group]:
    """Return the groups to send now, in the order of their first deliveries; each alert has one delivery in flight.

    Args: in_flight: the subjects that are being sent; grouping_receivers: those that take several alerts per message.
    """
    groups: dict[object, list[Delivery]] = {}
    for delivery in _first_of_each(deliveries, in_flight):
        is_grouped = delivery.receiver in grouping_receivers and delivery.run_id is not None
        group_key = (delivery.receiver, delivery.run_id) if is_grouped else delivery.subject
        groups.setdefault((is_grouped, group_key), []).append(delivery)
    return [tuple(group) for group in groups.values()]


def _first_of_each(deliveries: Iterable[Delivery], in_flight: Collection[Subject]) -> Iterator[Delivery]:
    """Yield the first delivery of each subject that is not being sent."""
    taken = set(in_flight)
    for delivery in deliveries:
        if delivery.subject not in taken:
            taken.add(delivery.subject)
            yield delivery


MERGED_RULE = "stalled"
MIN_RUNS = 3
MAX_WAIT_SECONDS = 55.0
"""Longest wait of a stall for others, so that with the polls in between it is sent within a minute."""


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
    """Return the stalls of three runs or more as one group per receiver and state, and the new ones that still wait.

    What one person acknowledged at once is merged in the same way, and waits for nothing.
    """
    groups: dict[object, list[Delivery]] = {}
    for delivery in _first_of_each(deliveries, in_flight):
        has_run = delivery.run_id is not None and delivery.episode is not None
        told, ack = delivery.notification, delivery.notification.ack if delivery.is_acknowledgement else None
        if has_run and (ack or told.alert.rule == MERGED_RULE) and delivery.receiver in merging.receivers:
            groups.setdefault((delivery.receiver, delivery.told_state, ack), []).append(delivery)
    merged: list[Group] = []
    waiting: list[Delivery] = []
    for group in groups.values():
        new = [delivery for delivery in group if _is_new(delivery)]
        made = [delivery.made_at for delivery in new]
        if made and now < min(max(made) + merging.quiet_seconds, min(made) + MAX_WAIT_SECONDS):
            waiting += new
            group = [delivery for delivery in group if not _is_new(delivery)]
        if len({delivery.run_id for delivery in group}) >= MIN_RUNS:
            merged.append(tuple(group))
    return MergedStalls(tuple(merged), tuple(waiting))


def _is_new(delivery: Delivery) -> bool:
    is_first = delivery.state is DeliveryState.DUE and not delivery.attempts and not delivery.rounds
    return is_first and not delivery.is_acknowledgement


def repeat_interval_seconds(
    delivery: Delivery, alert: Alert | None, *, remind_seconds: float, receiver_repeat_seconds: float | None
) -> float | None:
    """Return the wait until a delivery is sent again while its alert fires, or None if it is not.

    Args: alert: the alert of the delivery, None if it ended; remind_seconds: the interval for pages;
    receiver_repeat_seconds: the interval for all alerts of a receiver that drops those not sent again.
    """
    if delivery.is_acknowledgement or delivery.told_state is not AlertState.FIRING:
        return None
    if alert is None or alert.state is not AlertState.FIRING:
        return None
    return receiver_repeat_seconds or (remind_seconds if alert.severity is Severity.PAGE else None)

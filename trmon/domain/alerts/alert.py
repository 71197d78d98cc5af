"""Alerts: what a rule says of a run, from pending over firing to resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from trmon.domain.model.severity import Severity


class AlertState(Enum):
    """Where an alert is in its life; an alert that never fired is dropped, not resolved."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One episode of a rule being true of a run.

    `identity` is the same for every episode of (rule, run, labels); `attempt_id`, `step`, `update` say where the
    episode began, `since_at` when. `value` and `threshold` are the newest ones seen.
    """

    identity: str
    run_id: int
    rule: str
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: float
    threshold: float
    summary: str
    labels: dict[str, str]
    runbook: str = ""

    @property
    def episode(self) -> str:
        """What this episode, and no other of any alert, is known by."""
        update = "" if self.update is None else f".{self.update}"
        return f"{self.identity}@{self.attempt_id}:{self.step}{update}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Somebody's word that they have taken up an alert's episode: people are not reminded of it."""

    author: str
    note: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """A transition of an alert, unique by (identity, attempt, step, update or silence start, state)."""

    identity: str
    run_id: int
    attempt_id: int
    step: int
    update: int | None
    silence_started_at: float | None
    state: AlertState
    at: float
    value: float
    threshold: float
    summary: str


class DeliveryState(Enum):
    """Where a delivery is.

    HELD is muted until the reason is gone. STANDING is told, and told again for as long as its alert fires. MUTED was
    never told, with a named reason.
    """

    DUE = "due"
    HELD = "held"
    STANDING = "standing"
    DELIVERED = "delivered"
    MUTED = "muted"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPlace:
    """Where an alert changed: at which step of which attempt."""

    identity: str
    attempt_id: int
    step: int


Subject = tuple[str, str | int]
"""A receiver, and an episode of an alert or else a delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification in the outbox: to whom, what, and how often it was tried; `dedup_key` is unique.

    `state` is where it is, `made_at` when the alert changed. `run_id` and `episode` say which alert it tells of,
    `told_state` whether that it fires or that it has resolved; `rounds` how often it was told. One without an episode
    is told whatever happens.
    """

    id: int
    receiver: str
    dedup_key: str
    body: dict[str, Any]
    attempts: int = 0
    state: DeliveryState = DeliveryState.DUE
    due_at: float = 0.0
    made_at: float = 0.0
    run_id: int | None = None
    episode: str | None = None
    told_state: AlertState = AlertState.FIRING
    rounds: int = 0

    @property
    def place(self) -> AlertPlace | None:
        """Where the alert changed, as the body says; None where the body is not of an alert."""
        alert, run, step = (self.body.get(name) for name in ("alert", "run", "step"))
        if not isinstance(alert, dict) or not isinstance(run, dict) or not isinstance(step, int):
            return None
        return AlertPlace(identity=alert["identity"], attempt_id=run["attempt_id"], step=step)

    @property
    def subject(self) -> Subject:
        """What it tells of, and to whom: deliveries of one subject are told one after the other."""
        return self.receiver, self.id if self.episode is None else self.episode

    @property
    def key(self) -> str:
        """What one telling is known by: a retry repeats it, another round does not."""
        return f"{self.dedup_key}:{self.rounds}" if self.rounds else self.dedup_key

"""Alerts: the states of a rule on a run, from pending to firing to resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity

INCIDENT_RULE = "incident"
"""The rule name of the alert that carries a run's incident; no rule may have it."""
SINCE_LABEL = "since_step"
"""The label of an incident's alert with the step at which its cause began, where that is later than the incident."""
ENDED_LABEL = "ended"
"""The label of an incident's alert that says how its run finished with it."""


class AlertState(Enum):
    """The state of an alert; an alert that never fired is dropped, not resolved."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One episode in which the condition of a rule holds on a run.

    `identity` is the same for every episode of (rule, run, labels); `attempt_id`, `step`, `update` are the place where
    the episode began, `since_at` the time. `value` and `threshold` are the newest ones.
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
    def is_incident(self) -> bool:
        """Whether the alert carries the incident of its run; its labels name the cause, and change with it."""
        return self.rule == INCIDENT_RULE

    @property
    def since_step(self) -> int:
        """The step at which what is wrong began; of an incident that a prediction opened, later than its own step."""
        return int(self.labels[SINCE_LABEL]) if self.is_incident and SINCE_LABEL in self.labels else self.step

    @property
    def run_ended(self) -> str:
        """How the run finished with the incident; empty for one that was over before, and for other alerts."""
        return self.labels.get(ENDED_LABEL, "") if self.is_incident else ""

    @property
    def episode(self) -> str:
        """The identity of this episode, unique among all alerts."""
        update = "" if self.update is None else f".{self.update}"
        return f"{self.identity}@{self.attempt_id}:{self.step}{update}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A note that a person handles an alert's episode: reminders of it stop."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """An alert with its id, its run, the owner of the run and its acknowledgement."""

    id: int
    run: RunKey
    alert: Alert
    owner: str | None = None
    ack: Acknowledgement | None = None

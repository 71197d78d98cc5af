"""Alerts and incidents as a service describes them."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo, ApiNumber

INCIDENT = "incident"
"""The rule of the alert that carries a run's incident."""


class AckInfo(AnswerInfo, frozen=True, kw_only=True):
    """Who acknowledged an alert, and when."""

    author: str
    note: str
    at: float


class SilencedInfo(AnswerInfo, frozen=True, kw_only=True):
    """The silence that mutes an alert now."""

    id: int
    author: str
    note: str
    ends_at: float


class MemberInfo(AnswerInfo, frozen=True, kw_only=True):
    """An alert that joined an incident."""

    identity: str
    rule: str
    severity: str
    state: str
    attempt_id: int
    step: int
    summary: str


class AlertInfo(AnswerInfo, frozen=True, kw_only=True):
    """One episode of an alert; `step` and `update` are where it began; an incident has its alerts as `members`."""

    project: str
    run: str
    identity: str
    rule: str
    title: str
    members: tuple[MemberInfo, ...]
    severity: str
    state: str
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: ApiNumber
    threshold: ApiNumber
    summary: str
    labels: dict[str, str]
    runbook: str
    ack: AckInfo | None = None
    owner: str | None = None
    silenced: SilencedInfo | None = None

    @property
    def is_incident(self) -> bool:
        """Whether it carries a run's incident."""
        return self.rule == INCIDENT

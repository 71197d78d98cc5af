"""Request and response schemas of alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.severity import Severity


class AckIn(BaseModel):
    """An acknowledgement of an alert."""

    model_config = ConfigDict(extra="forbid")

    author: str | None = Field(None, min_length=1, max_length=128, description="Defaults to the token's name.")
    note: str = Field("", max_length=2000)


class AckOut(ResponseModel):
    """Who acknowledged an alert, and when."""

    author: str
    note: str
    at: float


class AlertEventOut(ResponseModel):
    """A state transition of an alert."""

    state: AlertState
    at: float
    attempt_id: int
    step: int
    update: int | None
    value: Number
    threshold: Number
    summary: str


class MemberOut(ResponseModel):
    """An alert that joined an incident."""

    identity: str
    rule: str
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    summary: str


class AlertOut(ResponseModel):
    """One episode of an alert; `step` and `update` are where it began."""

    project: str
    run: str
    identity: str = Field(description="The same for every episode of a rule, run and labels.")
    rule: str = Field(description="The rule; `incident` for the alert that carries a run's incident.")
    title: str = Field(description="The rule in words; of an incident, its cause.")
    members: list[MemberOut] = Field(description="The alerts that joined an incident; empty for other alerts.")
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: Number
    threshold: Number
    summary: str
    labels: dict[str, str]
    runbook: str
    ack: AckOut | None = Field(description="The acknowledgement of this episode; null if there is none.")

    @classmethod
    def of(cls, listed: ListedAlert, *, members: Sequence[Alert] = ()) -> Self:
        """Return the response for an alert. Args: members: the alerts that joined it, of an incident."""
        alert = listed.alert
        return cls.from_fields(
            alert,
            project=listed.run.project,
            run=listed.run.run,
            title=Incident(alert=alert).title if alert.is_incident else alert.rule.replace("_", " "),
            members=[MemberOut.from_fields(member) for member in members],
            ack=listed.ack,
        )

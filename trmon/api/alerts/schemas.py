"""Request and response schemas of alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.alerts.silences import Silence
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.access import Access
from trmon.domain.model.severity import Severity

MAX_ACKS = 500


class AckIn(BaseModel):
    """An acknowledgement of an alert."""

    model_config = ConfigDict(extra="forbid")

    author: str | None = Field(None, min_length=1, max_length=128, description="Defaults to the token's name.")
    note: str = Field("", max_length=2000)


class AckManyIn(AckIn):
    """An acknowledgement of several alerts."""

    identities: list[Annotated[str, Field(max_length=1024)]] = Field(min_length=1, max_length=MAX_ACKS)


class AckRefusalOut(ResponseModel):
    """Why an alert was not acknowledged."""

    identity: str
    detail: str


class AckManyOut(ResponseModel):
    """The identities of the alerts that were acknowledged, and of those that were not."""

    acknowledged: list[str]
    refused: list[AckRefusalOut]


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


class SilencedOut(ResponseModel):
    """The silence that mutes an alert; of several, the one that ends last."""

    id: int
    author: str
    note: str = Field(description="Empty if the caller may not list the silence, which is of all projects.")
    ends_at: float

    @classmethod
    def of(cls, silences: Sequence[Silence], listed: ListedAlert, *, access: Access, now: float) -> Self | None:
        """Return the silence that covers an alert; None without one."""
        covering = [one for one in silences if one.covers(listed.alert, run=listed.run, owner=listed.owner, now=now)]
        if listed.alert.state is not AlertState.FIRING or not covering:
            return None
        silence = max(covering, key=lambda one: one.ends_at)
        return cls.from_fields(silence, note=silence.note if access.project in (None, silence.project) else "")


class AlertOut(ResponseModel):
    """One episode of an alert; `step` and `update` are where it began."""

    project: str
    run: str
    owner: str | None = Field(description="The owner of the run.")
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
    silenced: SilencedOut | None = Field(description="The silence that mutes it now; null if none does.")

    @classmethod
    def of(cls, listed: ListedAlert, *, members: Sequence[Alert] = (), silenced: SilencedOut | None = None) -> Self:
        """Return the response for an alert. Args: members: the alerts that joined it, of an incident."""
        alert = listed.alert
        return cls.from_fields(
            alert,
            project=listed.run.project,
            run=listed.run.run,
            owner=listed.owner,
            title=Incident(alert=alert).title if alert.is_incident else alert.rule.replace("_", " "),
            members=[MemberOut.from_fields(member) for member in members],
            ack=listed.ack,
            silenced=silenced,
        )

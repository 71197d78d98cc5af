"""Response schema of incidents."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.health.problems import first_action
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.severity import Severity


class IncidentOut(ResponseModel):
    """The newest illness of a run, from its first finding to its end; the first step never changes."""

    finding: str | None = Field(description="The letter of the finding that leads it; null if only symptoms are known.")
    title: str
    cause: str = Field(description="The rule that leads it.")
    severity: Severity = Field(description="The worst so far.")
    since_step: int
    last_good_step: int | None = Field(description="The last step before it; null if it began with the run.")
    state: AlertState = Field(description="firing while it is open, else resolved.")
    opened_at: float
    ended_at: float | None
    ended_with_run: bool = Field(description="Whether it stood when the run finished: the run ended ill.")
    fix: str = Field(description="The first thing to do.")
    identity: str = Field(description="The identity of its alert, to acknowledge it.")
    acked_by: str | None

    @classmethod
    def of(cls, listed: ListedAlert) -> Self:
        """Return the response for the alert that carries an incident."""
        alert, incident = listed.alert, Incident(alert=listed.alert)
        return cls.from_fields(
            incident,
            finding=incident.finding.value if incident.finding is not None else None,
            state=alert.state,
            opened_at=alert.since_at,
            ended_at=None if incident.is_open else alert.updated_at,
            fix=first_action(incident),
            identity=alert.identity,
            acked_by=listed.ack.author if listed.ack else None,
        )

    @classmethod
    def of_newest(cls, listed: ListedAlert | None) -> Self | None:
        """Return the response for a run's newest incident; None without one."""
        return None if listed is None else cls.of(listed)

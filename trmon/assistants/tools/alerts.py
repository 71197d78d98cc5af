"""Tools on what was told of runs: alerts, incidents and notes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import RunName, checked_run
from trmon.assistants.bounded import bounded_name, bounded_text, rounded, taken, written_time
from trmon.domain.finding import JsonNumber
from trmon_client.api import AlertInfo, NoteInfo, Service

MAX_MEMBERS = 12


class AlertAnswer(ToolAnswer):
    """An alert, or with `rules` an incident: one illness of a run with all its alerts. explain takes the rule."""

    run: str
    rule: str
    title: str
    severity: str
    state: str
    step: int
    since: str | None
    value: JsonNumber
    threshold: JsonNumber
    summary: str
    what_to_do: str
    rules: list[str] | None
    acknowledged_by: str | None
    silenced_until: str | None


class AlertsAnswer(ToolAnswer):
    """Alerts and incidents, newest first."""

    alerts: list[AlertAnswer]
    more: bool | None


class NoteAnswer(ToolAnswer):
    """A note that a person wrote on a run, or on one of its steps."""

    step: int | None
    author: str
    at: str | None
    text: str


class NotesAnswer(ToolAnswer):
    """Notes, newest first."""

    run: str
    notes: list[NoteAnswer]
    more: bool | None


def list_alerts_tool(
    service: Service,
    run: Annotated[
        str | None, Field(description="Only alerts of this run, PROJECT/RUN; all runs by default.", max_length=300)
    ] = None,
    state: Annotated[
        Literal["pending", "firing", "resolved"] | None, Field(description="Only alerts in this state.")
    ] = None,
    incidents_only: Annotated[bool, Field(description="One line for each illness of a run.")] = False,
    limit: Annotated[int, Field(ge=1, le=25, description="The most alerts to return.")] = 15,
) -> AlertsAnswer:
    """List alerts and incidents, newest first: which rule, since which step, its value against its limit, and what to
    do. An incident is one illness of a run; rules names its alerts."""
    name = None if run is None else checked_run(run)
    found = service.incidents(run=name, state=state) if incidents_only else service.alerts(run=name, state=state)
    alerts, more = taken(found, limit)
    return AlertsAnswer(alerts=[_alert(alert) for alert in alerts], more=more or None)


def list_notes_tool(
    service: Service,
    run: RunName,
    limit: Annotated[int, Field(ge=1, le=25, description="The most notes to return.")] = 15,
) -> NotesAnswer:
    """List what people wrote on a run and its steps, newest first."""
    name = checked_run(run)
    notes, more = taken(service.notes(name), limit)
    return NotesAnswer(run=name, notes=[_note(note) for note in notes], more=more or None)


def _alert(alert: AlertInfo) -> AlertAnswer:
    return AlertAnswer(
        run=f"{alert.project}/{alert.run}",
        rule=bounded_name(alert.rule),
        title=bounded_name(alert.title),
        severity=alert.severity,
        state=alert.state,
        step=alert.step,
        since=written_time(alert.since_at),
        value=rounded(alert.value),
        threshold=rounded(alert.threshold),
        summary=bounded_text(alert.summary, 300),
        what_to_do=bounded_text(alert.runbook, 300),
        rules=[bounded_name(member.rule) for member in alert.members[:MAX_MEMBERS]] or None,
        acknowledged_by=None if alert.ack is None else bounded_text(alert.ack.author, 80),
        silenced_until=None if alert.silenced is None else written_time(alert.silenced.ends_at),
    )


def _note(note: NoteInfo) -> NoteAnswer:
    return NoteAnswer(
        step=note.step, author=bounded_text(note.author, 80), at=written_time(note.at), text=bounded_text(note.text)
    )

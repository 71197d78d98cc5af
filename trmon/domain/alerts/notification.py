"""A notification: everything that a receiver may say about one transition of an alert."""

from __future__ import annotations

from enum import Enum
from urllib.parse import quote

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import (
    INCIDENT_RULE,
    Acknowledgement,
    Alert,
    AlertEvent,
    AlertState,
    TransitionReason,
    transition_event,
)
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import Run, RunState
from trmon.domain.severity import JsonNumber, Severity, json_number
from trmon_client.core.wire.messages import decodable


class NotifiedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """The alert of a notification: `since_at` and `since_step` are the start of its episode, `at` the transition."""

    identity: str
    rule: str
    severity: Severity
    labels: dict[str, str]
    since_at: float
    at: float
    since_step: int

    @property
    def is_incident(self) -> bool:
        """Whether it carries the incident of its run."""
        return self.rule == INCIDENT_RULE


class NotifiedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a notification, under the names by which receivers know it."""

    project: str
    run: str
    owner: str | None
    tags: tuple[str, ...]
    mode: str
    attempt_id: int


class NotifiedState(Enum):
    """What a notification says of its alert, the most urgent first."""

    FIRING = "firing"
    ENDED_OPEN = "ended_open"
    """The run finished while its incident was open: nothing has healed."""
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class FiringAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires on the run when the notification is sent; `muted` is the reason if it is muted.

    `in_incident`: whether it joined the incident that fires, which stands for it.
    """

    rule: str
    title: str
    severity: Severity
    since_step: int
    summary: str
    acknowledged: bool
    muted: str | None
    in_incident: bool


class Flapping(msgspec.Struct, frozen=True, kw_only=True):
    """The number of transitions of a flapping alert, and the number of steps in which they happened."""

    transitions: int
    within_steps: int


class NotifiedCause(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of an incident: the finding or rule that leads it, and what to do.

    `options` are settings of the run's framework, to be pasted; `last_good_step` is the last good step before it began,
    `checkpoint` says which checkpoint to go back to, with its step and path, or that there is none.
    """

    rule: str
    title: str
    last_good_step: int | None
    remedy: str
    options: dict[str, str]
    runbook_url: str | None
    checkpoint: str = ""
    checkpoint_step: int | None = None
    checkpoint_path: str | None = None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of the illness as a PNG, where the service serves it (None: nowhere), and what it shows, in words."""

    png: bytes
    url: str | None
    words: str


@decodable
class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transition of an alert, as the outbox stores it and receivers render it.

    The fields with a default describe one delivery and are set when it is sent: `firing` holds all alerts that fire
    on the run by then, `flapping` is set if the alert starts to flap, `told_before` counts the earlier reminders, and
    `key` identifies the delivery (a retry repeats it, a reminder does not), `ended` says how the run
    finished with the incident, whether that is its end or it was not sent before. `cause` is set for an incident,
    `ack` says who has the alert, `began_at` when its first step closed, if that is stored; `picture` is for receivers
    that show one.
    """

    status: AlertState
    reason: str
    alert: NotifiedAlert
    run: NotifiedRun
    value: JsonNumber
    threshold: JsonNumber
    summary: str
    step: int
    update: int | None
    runbook: str
    url: str | None
    firing: tuple[FiringAlert, ...] = ()
    flapping: Flapping | None = None
    told_before: int = 0
    key: str = ""
    cause: NotifiedCause | None = None
    ended: str = ""
    ack: Acknowledgement | None = None
    began_at: float | None = None
    picture: Picture | None = None
    runbook_url: str | None = None

    @property
    def state(self) -> NotifiedState:
        """What it says of the alert."""
        if self.ended:
            return NotifiedState.ENDED_OPEN
        if self.is_acknowledgement:
            return NotifiedState.ACKNOWLEDGED
        return NotifiedState.FIRING if self.is_firing else NotifiedState.RESOLVED

    @property
    def is_acknowledgement(self) -> bool:
        """Whether it reports that a person has taken the alert, which goes on."""
        return self.reason == TransitionReason.ACKNOWLEDGED.value

    @property
    def is_firing(self) -> bool:
        """Whether the alert fires; otherwise it has resolved."""
        return self.status is AlertState.FIRING

    @property
    def is_end_with_run(self) -> bool:
        """Whether it reports the end of an incident that was open until its run finished."""
        return not self.is_firing and self.alert.is_incident and self.reason == TransitionReason.FINISHED.value


def build_notification(
    alert: Alert, event: AlertEvent, *, reason: TransitionReason, run: Run, public_url: str | None
) -> Notification:
    """Return the notification of a transition."""
    page = run_url(run, public_url=public_url)
    return Notification(
        status=event.state,
        reason=reason.value,
        alert=NotifiedAlert(
            identity=alert.identity,
            rule=alert.rule,
            severity=alert.severity,
            labels={} if alert.is_incident else alert.labels,
            since_at=alert.since_at,
            at=event.at,
            since_step=alert.since_step,
        ),
        run=NotifiedRun(
            project=run.key.project,
            run=run.key.run,
            owner=run.owner,
            tags=run.tags,
            mode=run.mode,
            attempt_id=event.attempt_id,
        ),
        value=json_number(event.value),
        threshold=json_number(event.threshold),
        summary=event.summary,
        step=event.step,
        update=event.update,
        runbook=alert.runbook,
        url=None if page is None else f"{page}?step={alert.since_step}",
    )


def run_url(run: Run, *, public_url: str | None) -> str | None:
    """Return the URL of a run's page, or None if the service does not know its public URL."""
    if public_url is None:
        return None
    return f"{public_url.rstrip('/')}/runs/{quote(run.key.project, safe='')}/{quote(run.key.run, safe='')}"


RULE = "notify_test"
RUN = RunKey("trmon", "notify-test")
REASONS = {AlertState.FIRING: TransitionReason.FIRED, AlertState.RESOLVED: TransitionReason.RESOLVED}


def sample_notification(state: AlertState, *, receiver: str, public_url: str | None, now: float) -> Notification:
    """Return a notification that a test alert fires, or has resolved."""
    alert = Alert(
        identity=RULE,
        run_id=0,
        rule=RULE,
        severity=Severity.WARN,
        state=state,
        attempt_id=0,
        step=0,
        update=None,
        since_at=now,
        updated_at=now,
        value=1.0,
        threshold=0.0,
        summary="This is a test of trmon's notifications; nothing is wrong",
        labels={},
        runbook="Nothing to do.",
    )
    run = Run(id=0, key=RUN, state=RunState.RUNNING, created_at=now, last_report_at=now, last_step=0, attempt_id=0)
    notification = build_notification(
        alert, transition_event(alert), reason=REASONS[state], run=run, public_url=public_url
    )
    return structs.replace(notification, key=f"{receiver}:{RULE}:{now:.3f}:{state.value}")

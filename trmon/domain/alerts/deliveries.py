"""What receivers are told of an alert: one delivery each, with a key by which nobody is told twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState, Delivery
from trmon.domain.alerts.transitions import Transition, TransitionReason
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

MESSAGE_VERSION = 2


def deliveries_of(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    """Return one delivery a receiver for a transition that people hear of: firing or resolved, page or warn.

    Nothing fires on a finished run, also not by batches that close after its end; that its alerts are over is told.
    """
    alert, event = transition.alert, transition.event
    if alert is None or event is None or alert.severity is Severity.INFO:
        return ()
    if context.run.state is RunState.FINISHED and event.state is AlertState.FIRING:
        return ()
    body = notification_body(alert, event, reason=transition.reason, run=context.run, public_url=context.public_url)
    return tuple(
        Delivery(
            id=0,
            receiver=receiver,
            dedup_key=_dedup_key(event, receiver=receiver),
            body=body,
            due_at=context.now,
            made_at=context.now,
            run_id=alert.run_id,
            episode=alert.episode,
            told_state=event.state,
        )
        for receiver in _addressed(event, context)
    )


def _addressed(event: AlertEvent, context: PassContext) -> Iterable[str]:
    """The owner may have changed since it fired: when it is told, it is known who heard of it."""
    if event.state is AlertState.FIRING:
        return context.receivers
    return dict.fromkeys((*context.receivers, *context.everyone))


def closing_delivery(heard: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    """Return what tells a receiver that has heard that an alert fires that it is over, under the name that it heard.

    It is of no run, so that it outlives the run's rows, and of its alert still, so that it is told after what is
    being told of it.
    Args: reason: the run is gone, or has another name.
    """
    named = f"{reason.name.lower()}:{heard.body['run']['run']}"
    over: dict[str, Any] = {
        "status": AlertState.RESOLVED.value,
        "reason": reason.value,
        "url": None,
        "firing": [],
    }
    return Delivery(
        id=0,
        receiver=heard.receiver,
        dedup_key=f"{heard.receiver}:{heard.episode}:{named}:{AlertState.RESOLVED.value}",
        body=heard.body | over | {"alert": heard.body["alert"] | {"at": now}},
        due_at=now,
        made_at=now,
        episode=heard.episode,
        told_state=AlertState.RESOLVED,
    )


def _dedup_key(event: AlertEvent, *, receiver: str) -> str:
    if event.silence_started_at is not None:
        place = f"silence-{event.silence_started_at:.3f}"
    else:
        place = f"{event.step}" if event.update is None else f"{event.step}.{event.update}"
    return f"{receiver}:{event.identity}:{event.attempt_id}:{place}:{event.state.value}"


def notification_body(
    alert: Alert, event: AlertEvent, *, reason: TransitionReason, run: Run, public_url: str | None
) -> dict[str, Any]:
    """Return what is told of a transition, as JSON."""
    return {
        "status": event.state.value,
        "reason": reason.value,
        "alert": {
            "identity": alert.identity,
            "rule": alert.rule,
            "severity": alert.severity.value,
            "labels": alert.labels,
            "since_at": alert.since_at,
            "at": event.at,
            "since_step": alert.step,
        },
        "run": {
            "project": run.key.project,
            "run": run.key.run,
            "owner": run.owner,
            "tags": list(run.tags),
            "mode": run.mode,
            "attempt_id": event.attempt_id,
        },
        "value": jsonable(event.value),
        "threshold": jsonable(event.threshold),
        "summary": event.summary,
        "step": event.step,
        "update": event.update,
        "runbook": alert.runbook,
        "url": step_url(run, event.step, public_url=public_url),
    }


def group_message(deliveries: Sequence[Delivery]) -> dict[str, Any]:
    """Return what is told by one message of deliveries of one run, as JSON: the run, and every alert by itself."""
    told = [_told(delivery) for delivery in deliveries]
    body, fires = deliveries[0].body, any(alert["status"] == AlertState.FIRING.value for alert in told)
    return {
        "version": MESSAGE_VERSION,
        "status": (AlertState.FIRING if fires else AlertState.RESOLVED).value,
        "run": {name: body["run"][name] for name in ("project", "run", "owner", "tags", "mode")},
        "alerts": told,
        "firing": body.get("firing", []),
    }


def _told(delivery: Delivery) -> dict[str, Any]:
    body = delivery.body
    transition = {name: value for name, value in body.items() if name not in ("alert", "run", "firing", "version")}
    return {"key": delivery.key, **transition, **body["alert"], "attempt_id": body["run"]["attempt_id"]}


def step_url(run: Run, step: int, *, public_url: str | None) -> str | None:
    """Return where people look at a run at a step; None where the service does not know its own URL."""
    if public_url is None:
        return None
    return f"{public_url.rstrip('/')}/runs/{quote(run.key.project, safe='')}/{quote(run.key.run, safe='')}?step={step}"


def jsonable(value: float) -> float | str | None:
    """Return a number as JSON has it: null for NaN, and infinities by name."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")

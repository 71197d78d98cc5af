"""The words of a message to people, without markup: receivers add that of their service."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trmon.domain.alerts.notification import Notification, NotifiedCause
from trmon.domain.severity import Severity

MAX_NAMED_RUNS = 10
"""Runs that a merged message names; the others are only counted."""
SHARED_CAUSE = "Several runs at once: look first for what they share, such as the network, storage or the scheduler."


def run_names(notifications: Sequence[Notification]) -> tuple[str, ...]:
    """Return the runs of notifications as "project/run", each once, in order."""
    return tuple(dict.fromkeys(f"{one.run.project}/{one.run.run}" for one in notifications))


def merged_summary(notifications: Sequence[Notification]) -> str:
    """Return how many runs a merged message reports, e.g. "12 runs stalled within 31 s"."""
    count, rule = len(run_names(notifications)), notifications[0].alert.rule
    if not notifications[0].is_firing:
        return f"{count} runs are no longer {rule}"
    times = [notification.alert.at for notification in notifications]
    return f"{count} runs {rule} within {max(1, math.ceil(max(times) - min(times)))} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertParagraph:
    """One alert: its status and summary, and further lines."""

    status: str
    is_firing: bool
    severity: Severity
    summary: str
    details: tuple[str, ...] = ()
    ended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to the newest step that a message reports."""

    text: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageText:
    """A message: a subject of one line, its alerts, a note about the run's other alerts, and a link."""

    subject: str
    alerts: tuple[AlertParagraph, ...]
    note: str | None = None
    link: Link | None = None


def message_text(notifications: Sequence[Notification]) -> MessageText:
    """Return the text of notifications of one run, or of one rule that several runs meet."""
    if len(run_names(notifications)) > 1:
        return _merged_text(notifications)
    newest = max(notifications, key=lambda notification: notification.step)
    alerts = tuple(
        AlertParagraph(
            status=_status(notification),
            is_firing=notification.is_firing,
            severity=notification.alert.severity,
            summary=notification.summary,
            details=tuple(_details(notification)),
            ended=notification.ended,
        )
        for notification in notifications
    )
    status = next((alert.status for alert in alerts if alert.is_firing), alerts[0].status)
    run, causes = notifications[0].run, dict.fromkeys(map(_name, notifications))
    reported = {notification.alert.rule for notification in notifications}
    others = [alert for alert in notifications[-1].firing if alert.rule not in reported]
    names = [f"{alert.rule} (muted)" if alert.muted else alert.rule for alert in others]
    return MessageText(
        subject=f"[{status}] {run.project}/{run.run}: {', '.join(causes)}",
        alerts=alerts,
        note=f"Also firing: {', '.join(names)}" if names else None,
        link=None
        if newest.url is None
        else Link(text=f"{newest.run.run} at step {newest.alert.since_step}", url=newest.url),
    )


def _status(notification: Notification) -> str:
    if notification.ended:
        return notification.ended
    return f"still {notification.status.value}" if notification.told_before else notification.status.value


def _details(notification: Notification) -> Iterator[str]:
    if notification.is_end_with_run:
        yield f"The run {notification.ended or 'finished'} at step {notification.step}."
    elif not notification.is_firing:
        yield f"Over: {notification.reason}."
    if notification.flapping is not None:
        changes, steps = notification.flapping.transitions, notification.flapping.within_steps
        yield f"It flaps: {changes} changes within {steps} steps. No more of it until it settles."
    is_still_ill = notification.is_firing or notification.is_end_with_run
    if is_still_ill and notification.cause is not None:
        yield from _cause_details(notification.cause, is_late=notification.is_firing and bool(notification.ended))
    elif notification.is_firing and notification.runbook:
        yield notification.runbook


def _cause_details(cause: NotifiedCause, *, is_late: bool) -> Iterator[str]:
    """Yield the lines of a cause. Args: is_late: whether it was found while the run trained, and is told after it."""
    if cause.last_good_step is not None:
        yield f"Last good step: {cause.last_good_step}."
    yield f"For the next run: {cause.remedy}" if is_late else cause.remedy
    if cause.options:
        yield f"Set {', '.join(f'{name}={value}' for name, value in cause.options.items())}."
    if cause.runbook_url is not None:
        yield f"Runbook: {cause.runbook_url}"


def _name(notification: Notification) -> str:
    return notification.alert.rule if notification.cause is None else notification.cause.title


def _merged_text(notifications: Sequence[Notification]) -> MessageText:
    first, summary = notifications[0], merged_summary(notifications)
    lines = [notification.summary for notification in notifications[:MAX_NAMED_RUNS]]
    if len(notifications) > MAX_NAMED_RUNS:
        lines.append(f"... and {len(notifications) - MAX_NAMED_RUNS} more")
    if first.is_firing:
        lines += [SHARED_CAUSE, *([first.runbook] if first.runbook else [])]
    alert = AlertParagraph(
        status=_status(first),
        is_firing=first.is_firing,
        severity=first.alert.severity,
        summary=summary,
        details=tuple(lines),
    )
    return MessageText(subject=f"[{alert.status}] {summary}", alerts=(alert,))


def one_line(text: str, *, max_length: int) -> str:
    """Return text without line ends and control characters, which would end a header or change a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= max_length else f"{line[: max_length - 3]}..."


def plain_text(text: MessageText) -> str:
    """Return a message as plain text."""
    paragraphs = ["\n".join((f"{alert.status}: {alert.summary}", *alert.details)) for alert in text.alerts]
    if text.note is not None:
        paragraphs.append(text.note)
    if text.link is not None:
        paragraphs.append(f"{text.link.text}: {text.link.url}")
    return "\n\n".join(paragraphs) + "\n"


def message_key(notifications: Sequence[Notification]) -> str:
    """Return the idempotency key of a message: a retry of the same deliveries repeats it."""
    if len(notifications) == 1:
        return notifications[0].key
    keys = "\n".join(sorted(notification.key for notification in notifications))
    return f"group:{hashlib.sha256(keys.encode()).hexdigest()}"


def cause_details(notification: Notification) -> dict[str, str]:
    """Return the details of a notification's cause; empty if it is of no incident."""
    cause = notification.cause
    if cause is None:
        return {}
    known = {
        "title": cause.title,
        "cause": cause.rule,
        "last_good_step": cause.last_good_step,
        "remedy": cause.remedy,
        "options": ", ".join(f"{name}={value}" for name, value in cause.options.items()) or None,
        "runbook_url": cause.runbook_url,
    }
    return {name: str(value) for name, value in known.items() if value is not None}

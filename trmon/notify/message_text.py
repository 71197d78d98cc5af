"""The words of a message to people, without markup: receivers add that of their service."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from trmon.domain.alerts.alert import Acknowledgement
from trmon.domain.alerts.notification import Notification, NotifiedCause, NotifiedState, Picture
from trmon.domain.health.judgement import wall_time
from trmon.domain.severity import Severity

MAX_NAMED_RUNS = 10
"""Runs that a merged message names; the others are only counted."""
MAX_NAMED_ALERTS = 10
"""Alerts that a link to an action names."""
MAX_NOTE_LENGTH = 500
MAX_CHECKPOINT_LENGTH = 1100
SHARED_CAUSE = "Several runs at once: look first for what they share, such as the network, storage or the scheduler."


def run_names(notifications: Sequence[Notification]) -> tuple[str, ...]:
    """Return the runs of notifications as "project/run", each once, in order."""
    return tuple(dict.fromkeys(f"{one.run.project}/{one.run.run}" for one in notifications))


def merged_summary(notifications: Sequence[Notification]) -> str:
    """Return how many runs a merged message reports, e.g. "12 runs stalled within 31 s"."""
    count, rule = len(run_names(notifications)), notifications[0].alert.rule
    if (ack := notifications[0].ack) is not None and notifications[0].is_acknowledgement:
        return f"{_name_of(ack)} has {len(notifications)} alerts of {count} runs"
    if not notifications[0].is_firing:
        return f"{count} runs are no longer {rule}"
    times = [notification.alert.at for notification in notifications]
    return f"{count} runs {rule} within {max(1, math.ceil(max(times) - min(times)))} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertParagraph:
    """One alert: its status and summary, and further lines."""

    status: str
    state: NotifiedState
    severity: Severity
    summary: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to a page: the newest step that a message reports, or the dialog of an action."""

    text: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageText:
    """A message: a subject of one line, its alerts, a note about the run's other alerts, links, and a picture.

    The links of `actions` open the page on an action; nothing changes before a person presses its button there.
    """

    subject: str
    alerts: tuple[AlertParagraph, ...]
    note: str | None = None
    link: Link | None = None
    actions: tuple[Link, ...] = ()
    picture: Picture | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        """All links, that to what the message reports first."""
        return () if self.link is None else (self.link, *self.actions)


def message_text(notifications: Sequence[Notification]) -> MessageText:
    """Return the text of notifications of one run, or of one rule that several runs meet."""
    if len(run_names(notifications)) > 1:
        return _merged_text(notifications)
    newest = max(notifications, key=lambda notification: notification.step)
    alerts = tuple(
        AlertParagraph(
            status=_status(notification),
            state=notification.state,
            severity=notification.alert.severity,
            summary=notification.summary,
            details=tuple(_details(notification)),
        )
        for notification in notifications
    )
    status = next((alert.status for alert in alerts if alert.state is NotifiedState.FIRING), alerts[0].status)
    run, causes = notifications[0].run, dict.fromkeys(map(_name, notifications))
    reported = {notification.alert.rule for notification in notifications}
    others = [one for one in notifications[-1].firing if one.rule not in reported and not one.in_incident]
    names = [f"{alert.title} (muted)" if alert.muted else alert.title for alert in others]
    return MessageText(
        subject=f"[{status}] {run.project}/{run.run}: {', '.join(causes)}",
        alerts=alerts,
        note=f"Also firing: {', '.join(names)}" if names else None,
        link=None
        if newest.url is None
        else Link(text=f"{newest.run.run} at step {newest.alert.since_step}", url=newest.url),
        actions=tuple(_actions(notifications, newest.url)),
        picture=next((one.picture for one in notifications if one.picture is not None), None),
    )


def _actions(notifications: Sequence[Notification], url: str | None) -> Iterator[Link]:
    """Yield a link to each action that the firing alerts of one run still ask for."""
    firing = [one for one in notifications if one.is_firing and not one.ended]
    alerts = "".join(f"&alert={quote(one.alert.identity, safe='')}" for one in firing[:MAX_NAMED_ALERTS])
    if not firing or url is None:
        return
    if any(one.ack is None for one in firing):
        yield Link(text="Acknowledge", url=f"{url}&action=acknowledge{alerts}")
    yield Link(text="Silence", url=f"{url}&action=silence{alerts}")


def _status(notification: Notification) -> str:
    if notification.ended:
        return notification.ended
    if notification.is_acknowledgement:
        return notification.state.value
    return f"still {notification.status.value}" if notification.told_before else notification.status.value


def _details(notification: Notification) -> Iterator[str]:
    if notification.is_acknowledgement:
        yield from _who(notification.ack)
        return
    if notification.is_end_with_run:
        yield f"The run {notification.ended or 'finished'} at step {notification.step}."
    elif not notification.is_firing:
        yield f"Over: {notification.reason}."
    if notification.began_at is not None:
        is_over = not notification.is_firing and not notification.ended
        until = f", until {wall_time(notification.alert.at)}" if is_over else ""
        yield f"Since {wall_time(notification.began_at)}{until}."
    yield from _who(notification.ack)
    if notification.flapping is not None:
        changes, steps = notification.flapping.transitions, notification.flapping.within_steps
        yield f"It flaps: {changes} changes within {steps} steps. No more of it until it settles."
    is_still_ill = notification.is_firing or notification.is_end_with_run
    if is_still_ill and notification.cause is not None:
        yield from _cause_details(notification.cause, is_late=notification.is_firing and bool(notification.ended))
    elif notification.is_firing:
        if notification.runbook:
            yield notification.runbook
        if notification.runbook_url is not None:
            yield f"Runbook: {notification.runbook_url}"


def _who(ack: Acknowledgement | None) -> Iterator[str]:
    if ack is not None:
        note = one_line(ack.note, max_length=MAX_NOTE_LENGTH)
        yield f"Acknowledged by {_name_of(ack)} at {wall_time(ack.at)}{f': {note}' if note else '.'}"


def _name_of(ack: Acknowledgement) -> str:
    return one_line(ack.author, max_length=MAX_NOTE_LENGTH)


def _cause_details(cause: NotifiedCause, *, is_late: bool) -> Iterator[str]:
    """Yield the lines of a cause. Args: is_late: whether it was found while the run trained, and is told after it."""
    if cause.last_good_step is not None:
        yield f"Last good step: {cause.last_good_step}."
    if cause.checkpoint:
        yield _checkpoint_line(cause)
    yield f"For the next run: {cause.remedy}" if is_late else cause.remedy
    if cause.options:
        yield f"Set {', '.join(f'{name}={value}' for name, value in cause.options.items())}."
    if cause.runbook_url is not None:
        yield f"Runbook: {cause.runbook_url}"


def _checkpoint_line(cause: NotifiedCause) -> str:
    return one_line(cause.checkpoint, max_length=MAX_CHECKPOINT_LENGTH)


def _name(notification: Notification) -> str:
    return notification.alert.rule if notification.cause is None else notification.cause.title


def _merged_text(notifications: Sequence[Notification]) -> MessageText:
    first, summary = notifications[0], merged_summary(notifications)
    lines = [notification.summary for notification in notifications[:MAX_NAMED_RUNS]]
    if len(notifications) > MAX_NAMED_RUNS:
        lines.append(f"... and {len(notifications) - MAX_NAMED_RUNS} more")
    if first.is_acknowledgement:
        lines += _who(first.ack)
    elif first.is_firing:
        lines += [SHARED_CAUSE, *([first.runbook] if first.runbook else [])]
    alert = AlertParagraph(
        status=_status(first),
        state=first.state,
        severity=first.alert.severity,
        summary=summary,
        details=tuple(lines),
    )
    # The page of a run is three parts deep.
    page = None if first.url is None else f"{first.url.rsplit('/', 3)[0]}/alerts?q={quote(first.alert.rule)}"
    link = None if page is None or not first.is_firing else Link(text="The alerts", url=page)
    return MessageText(subject=f"[{alert.status}] {summary}", alerts=(alert,), link=link)


def one_line(text: str, *, max_length: int) -> str:
    """Return text without line ends and control characters, which would end a header or change a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= max_length else f"{line[: max_length - 3]}..."


def plain_text(text: MessageText) -> str:
    """Return a message as plain text."""
    paragraphs = ["\n".join((f"{alert.status}: {alert.summary}", *alert.details)) for alert in text.alerts]
    if text.note is not None:
        paragraphs.append(text.note)
    if text.links:
        paragraphs.append("\n".join(f"{link.text}: {link.url}" for link in text.links))
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
        "checkpoint": _checkpoint_line(cause) or None,
        "remedy": cause.remedy,
        "options": ", ".join(f"{name}={value}" for name, value in cause.options.items()) or None,
        "runbook_url": cause.runbook_url,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def who_and_when(notification: Notification) -> dict[str, str]:
    """Return when what a notification reports began, who has it, and how its run ended, where that is known."""
    ack = notification.ack
    known = {
        "began": None if notification.began_at is None else wall_time(notification.began_at),
        "acknowledged_by": None if ack is None else _name_of(ack),
        "note": None if ack is None else ack.note or None,
        "ended": notification.ended or None,
    }
    return {name: value for name, value in known.items() if value is not None}

"""Slack: the alerts of a run that are due together, as a message of an incoming webhook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from trmon.domain.alerts.alert import Delivery
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.notice import FiringAlert, Notice, notice_of
from trmon.notifications.receivers.receiver import DeliveryResult

MARKS = {"page": ":rotating_light:", "warn": ":warning:"}
RESOLVED_MARK = ":white_check_mark:"


class Slack:
    """Posts one message of several deliveries."""

    repeat_seconds = None
    is_grouping = True

    def __init__(self, peer: HttpPost) -> None:
        self._peer = peer

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Post one message."""
        return self._peer.post(msgspec.json.encode({"text": slack_text([notice_of(one) for one in deliveries])}))

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()


def slack_text(notices: Sequence[Notice]) -> str:
    """Return notices of one run in Slack's markup: what, what to do, and where to look."""
    lines = [line for notice in notices for line in _lines(notice)]
    others = [f"{alert.rule} (muted)" if alert.muted else alert.rule for alert in _others(notices)]
    if others:
        lines.append(f"Also firing: {_escaped(', '.join(others))}")
    newest = max(notices, key=lambda notice: notice.step)
    if newest.url is not None:
        lines.append(f"<{_escaped(newest.url)}|{_escaped(newest.run.run)} at step {newest.step}>")
    return "\n".join(lines)


def _lines(notice: Notice) -> Iterator[str]:
    mark = MARKS.get(notice.alert.severity, "") if notice.is_firing else RESOLVED_MARK
    status = f"still {notice.status}" if notice.told_before else notice.status
    yield f"{mark} *{status}* {_escaped(notice.summary)}"
    if not notice.is_firing:
        yield _escaped(f"Over: {notice.reason}.")
    if notice.flapping is not None:
        changes, steps = notice.flapping.transitions, notice.flapping.within_steps
        yield f"It flaps: {changes} changes within {steps} steps. No more of it until it settles."
    if notice.is_firing and notice.runbook:
        yield _escaped(notice.runbook)


def _others(notices: Sequence[Notice]) -> list[FiringAlert]:
    told = {notice.alert.rule for notice in notices}
    return [alert for alert in notices[-1].firing if alert.rule not in told]


def _escaped(text: str) -> str:
    """Return text that is no markup: a run may be called anything, also <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

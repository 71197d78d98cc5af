"""Slack: an alert as a message of an incoming webhook."""

from __future__ import annotations

import msgspec

from trmon.domain.alerts import Delivery
from trmon.notify.notice import FiringAlert, Notice, notice_of
from trmon.notify.peer import Peer
from trmon.notify.receiver import Result

MARKS = {"page": ":rotating_light:", "warn": ":warning:"}
RESOLVED_MARK = ":white_check_mark:"


class Slack:
    """Posts a message for each delivery."""

    repeat_seconds = None

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def deliver(self, delivery: Delivery, *, now: float) -> Result:  # noqa: ARG002 - the port's signature
        """Post one message."""
        return self._peer.post(msgspec.json.encode({"text": text_of(notice_of(delivery))}))

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()


def text_of(notice: Notice) -> str:
    """Return a notice in Slack's markup: what, what to do, and where to look."""
    mark = MARKS.get(notice.alert.severity, "") if notice.is_firing else RESOLVED_MARK
    status = f"still {notice.status}" if notice.told_before else notice.status
    lines = [f"{mark} *{status}* {_escaped(notice.summary)}"]
    if notice.flapping is not None:
        changes, steps = notice.flapping.transitions, notice.flapping.within_steps
        lines.append(f"It flaps: {changes} changes within {steps} steps. No more of it until it settles.")
    others = [f"{alert.rule} (muted)" if alert.muted else alert.rule for alert in _others(notice)]
    if others:
        lines.append(f"Also firing: {_escaped(', '.join(others))}")
    if notice.is_firing and notice.runbook:
        lines.append(_escaped(notice.runbook))
    if notice.url is not None:
        lines.append(f"<{_escaped(notice.url)}|{_escaped(notice.run.run)} at step {notice.step}>")
    return "\n".join(lines)


def _others(notice: Notice) -> list[FiringAlert]:
    return [alert for alert in notice.firing if alert.rule != notice.alert.rule]


def _escaped(text: str) -> str:
    """Return text that is no markup: a run may be called anything, also <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

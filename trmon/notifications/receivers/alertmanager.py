"""Alertmanager: an alert as one of its own, over API v2, sent again for as long as it fires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trmon.domain.alerts.alert import Delivery
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.notice import Notice, notice_of, rfc3339
from trmon.notifications.receivers.receiver import DeliveryResult

PATH = "/api/v2/alerts"
REPEAT_SECONDS = 60.0
LASTS_REPEATS = 4
"""An alert that missed so many repeats has ended there: a service that is gone leaves none behind."""


class Alertmanager:
    """Posts alerts under labels that never change while they fire; what was measured is in annotations."""

    is_grouping = True

    def __init__(self, peer: HttpPost, *, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._peer = peer
        self.repeat_seconds = repeat_seconds

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
        """Post alerts."""
        lasts = LASTS_REPEATS * self.repeat_seconds
        alerts = [alertmanager_alert(notice_of(one), now=now, lasts_seconds=lasts) for one in deliveries]
        return self._peer.post(msgspec.json.encode(alerts))

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()


def alertmanager_alert(notice: Notice, *, now: float, lasts_seconds: float) -> dict[str, Any]:
    """Return a notice as Alertmanager has it: numbers in a label would make each of them another alert."""
    ends_at = now + lasts_seconds if notice.is_firing else max(notice.alert.at, notice.alert.since_at)
    annotations = {
        "summary": notice.summary,
        "value": notice.value,
        "threshold": notice.threshold,
        "step": notice.step,
        "runbook": notice.runbook,
    }
    alert: dict[str, Any] = {
        "labels": _labels(notice),
        "annotations": {name: str(value) for name, value in annotations.items() if value is not None},
        "startsAt": rfc3339(notice.alert.since_at),
        "endsAt": rfc3339(ends_at),
    }
    return alert if notice.url is None else alert | {"generatorURL": notice.url}


def _labels(notice: Notice) -> dict[str, str]:
    ours = {
        "alertname": notice.alert.rule,
        "service": "trmon",
        "project": notice.run.project,
        "run": notice.run.run,
        "severity": notice.alert.severity,
        "owner": notice.run.owner or "",
    }
    return {name: value for name, value in (notice.alert.labels | ours).items() if value}

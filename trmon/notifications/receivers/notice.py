"""The body of a delivery, read back with types: what a receiver says in its own words."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from trmon.domain.alerts.alert import Delivery
from trmon_client.core.wire.decodable_types import decodable

Measured = float | str | None
"""A number as JSON has it: "inf" and "-inf" by name, null for NaN."""


class NoticedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """The alert a notice is of."""

    identity: str
    rule: str
    severity: str
    labels: dict[str, str]
    since_at: float
    at: float


class NoticedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run a notice is about."""

    project: str
    run: str
    owner: str | None


class FiringAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires on the run when the notice is told."""

    rule: str
    muted: str | None = None


class Flapping(msgspec.Struct, frozen=True, kw_only=True):
    """How often an alert changed, within how many steps."""

    transitions: int
    within_steps: int


@decodable
class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What receivers are told, as `domain.deliveries` writes it."""

    status: str
    reason: str = ""
    alert: NoticedAlert
    run: NoticedRun
    value: Measured
    threshold: Measured
    summary: str
    step: int
    runbook: str
    url: str | None
    firing: tuple[FiringAlert, ...] = ()
    flapping: Flapping | None = None
    told_before: int = 0

    @property
    def is_firing(self) -> bool:
        """Whether the alert fires; else it has resolved."""
        return self.status == "firing"


def notice_of(delivery: Delivery) -> Notice:
    """Return what a delivery says. Errors: msgspec.ValidationError where it is none of ours."""
    return msgspec.convert(delivery.body, Notice)


def rfc3339(at: float) -> str:
    """Return a moment, in seconds since the epoch, as RFC 3339 has it."""
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds")

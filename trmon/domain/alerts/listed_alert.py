"""An alert as lists show it."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.alerts.alert import Acknowledgement, Alert
from trmon.domain.model.identity import RunKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """An alert with its id, its run, the owner of the run and its acknowledgement."""

    id: int
    run: RunKey
    alert: Alert
    owner: str | None = None
    ack: Acknowledgement | None = None

"""The parts of a running service, as its routes reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from trmon.app.auth import Door
from trmon.app.events.wakeups import Wakeups
from trmon.app.live import Live
from trmon.app.metrics.counters import Counters
from trmon.app.metrics.exposition import Exposition
from trmon.app.notifier import Notifier
from trmon.app.policies.current import CurrentPolicies
from trmon.app.reports.reception import Reception
from trmon.app.rules.inforce import RulesInForce
from trmon.app.settings import Settings
from trmon.app.worker import Worker
from trmon.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that lives as long as the service."""

    settings: Settings
    store: Store
    worker: Worker
    live: Live
    notifier: Notifier
    rules: RulesInForce
    door: Door
    reception: Reception
    policies: CurrentPolicies
    wakeups: Wakeups
    counters: Counters
    exposition: Exposition


async def parts_of(request: Request) -> Parts:
    """Return the parts of the service that answers a request."""
    parts: Parts = request.app.state.parts
    return parts


Service = Annotated[Parts, Depends(parts_of)]
"""The running service, for routes."""

"""The parts of a running service, as its routes reach them."""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from trmon.app.crew import Crew
from trmon.app.events.wakeups import Wakeups
from trmon.app.fleet.glances import Glances
from trmon.app.health.readiness import Readiness
from trmon.app.http.auth import Door
from trmon.app.live import Live
from trmon.app.metrics.counters import Counters
from trmon.app.metrics.exposition import Exposition
from trmon.app.policies.current import CurrentPolicies
from trmon.app.reports.reception import Reception
from trmon.app.rules.inforce import RulesInForce
from trmon.app.settings import Settings
from trmon.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that lives as long as the service; without a crew, other processes watch the runs.

    `what_ifs` lets a few of those be answered at once, the others wait.
    """

    settings: Settings
    store: Store
    live: Live
    crew: Crew | None
    rules: RulesInForce
    door: Door
    reception: Reception
    policies: CurrentPolicies
    wakeups: Wakeups
    counters: Counters
    exposition: Exposition
    glances: Glances
    readiness: Readiness
    what_ifs: Semaphore


async def parts_of(request: Request) -> Parts:
    """Return the parts of the service that answers a request."""
    parts: Parts = request.app.state.parts
    return parts


Service = Annotated[Parts, Depends(parts_of)]
"""The running service, for routes."""

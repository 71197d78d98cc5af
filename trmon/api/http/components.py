"""The parts of a running service, as its routes reach them."""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from trmon.api.http.auth import Door
from trmon.api.http.readiness import Readiness
from trmon.bootstrap.background_services import Crew
from trmon.config.active_rules import RulesInForce
from trmon.config.settings import Settings
from trmon.ingest.ingest_service import Reception
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.store import Store
from trmon.views.commit_signal import Wakeups
from trmon.views.current_policies import CurrentPolicies
from trmon.views.run_summaries import Glances
from trmon.views.run_view_cache import Live


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

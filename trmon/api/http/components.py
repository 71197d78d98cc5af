"""The components of a running service, which routes receive as a dependency."""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from trmon.api.http.auth import Authenticator
from trmon.api.http.readiness import Readiness
from trmon.config.active_rules import ActiveRules
from trmon.config.settings import Settings
from trmon.ingest.ingest_service import IngestService
from trmon.ingest.quota_gate import QuotaGate
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.store import Store
from trmon.views.commit_signal import CommitSignal
from trmon.views.current_policies import CurrentPolicies
from trmon.views.run_summaries import RunSummaries
from trmon.views.run_verdicts import RunVerdicts
from trmon.views.run_view_cache import RunViewCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Everything that routes share, for the lifetime of the service.

    `what_ifs` limits how many what-if requests run at once; the others wait.
    """

    settings: Settings
    store: Store
    view_cache: RunViewCache
    rules: ActiveRules
    authenticator: Authenticator
    ingest_service: IngestService
    quota_gate: QuotaGate
    policies: CurrentPolicies
    commit_signal: CommitSignal
    counters: Counters
    exposition: Exposition
    summaries: RunSummaries
    verdicts: RunVerdicts
    readiness: Readiness
    what_ifs: Semaphore


async def components_of(request: Request) -> Components:
    """Return the components of the service that handles a request."""
    components: Components = request.app.state.components
    return components


Service = Annotated[Components, Depends(components_of)]
"""The running service, as a route's dependency."""

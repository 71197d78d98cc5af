"""The components of a running service, which routes receive as a dependency, and its check of readiness."""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from trmon.api.http.auth import Authenticator
from trmon.config.rules import ActiveRules
from trmon.config.settings import Settings
from trmon.domain.errors import NotReady
from trmon.fleet.changes import CommitSignal
from trmon.fleet.verdicts import JudgingWatch, RunVerdicts
from trmon.fleet.views import RunViewCache
from trmon.ingest.acknowledgement import CurrentPolicies
from trmon.ingest.quotas import QuotaGate
from trmon.ingest.service import IngestService
from trmon.metrics.counters import Counters
from trmon.metrics.exposition import Exposition
from trmon.notify.pictures import Pictures
from trmon.notify.registry import DeliveryCheck
from trmon.store import Store

TIMEOUT_SECONDS = 2.0


class Readiness:
    """Runs a check on its own thread, one at a time; concurrent callers share its result."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trmon-readiness")
        self._running: Future[None] | None = None

    async def check(self) -> None:
        """Raise NotReady if the check fails or does not finish within the timeout."""
        if self._running is None or self._running.done():
            self._running = self._thread.submit(self._check)
        answer = asyncio.shield(asyncio.wrap_future(self._running))
        try:
            await asyncio.wait_for(answer, TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise NotReady(f"the database does not answer within {TIMEOUT_SECONDS:g} s") from error

    def close(self) -> None:
        """Stop the thread without waiting for a check in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)


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
    verdicts: RunVerdicts
    readiness: Readiness
    delivery_check: DeliveryCheck
    pictures: Pictures
    judging: JudgingWatch
    what_ifs: Semaphore


async def components_of(request: Request) -> Components:
    """Return the components of the service that handles a request."""
    components: Components = request.app.state.components
    return components


Service = Annotated[Components, Depends(components_of)]
"""The running service, as a route's dependency."""

"""What monitoring reads: /metrics, for Prometheus, and the probes of liveness and readiness."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import structlog
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.domain.access import Access
from trmon.domain.pipeline.publish import RunView
from trmon.fleet.verdicts import JudgedRun
from trmon_client.api.administration import HealthInfo

log = structlog.get_logger(__name__)

router = APIRouter(tags=["metrics"])
probes = APIRouter(tags=["health"], route_class=AnswerRoute)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(access: Reader, service: Service) -> PlainTextResponse:
    """Return the active runs that the caller may see and, without a project's token, the service's counters."""
    now = time.time()
    views = service.view_cache.active(now)
    runs = service.exposition.text(views, project=access.project, verdicts=_verdicts(views, access, service, now=now))
    counters = "" if access.project is not None else generate_latest(service.counters.registry).decode()
    return PlainTextResponse(counters + runs, media_type=MEDIA_TYPE)


def _verdicts(views: Sequence[RunView], access: Access, service: Components, *, now: float) -> Mapping[int, JudgedRun]:
    """Return the verdicts by run id; none while the database cannot be read, when the other metrics matter most."""
    shown, _ = service.exposition.shown(views, project=access.project)
    try:
        return service.verdicts.of_views(shown, access=access, now=now)
    except Exception as error:  # noqa: BLE001 - the edge of a scrape: counted, and the next one tries again
        log.error("verdicts_not_read", error=str(error))
        service.counters.verdict_failures.inc()
        return {}


@probes.get("/healthz")
async def get_liveness() -> HealthInfo:
    """Succeed while the process responds."""
    return HealthInfo.from_fields()


@probes.get("/readyz")
async def get_readiness(service: Service) -> HealthInfo:
    """Succeed if the store responds and its writer, the worker and the dispatcher are running; 503 otherwise."""
    await service.readiness.check()
    return HealthInfo.from_fields()

"""The service: its routes, what every request passes on the way to them, and its life from start to end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI
from starlette.middleware import Middleware

from trmon.app.adaptation.endpoints import router as adaptation
from trmon.app.advice.endpoints import router as advice
from trmon.app.alerts.endpoints import router as alerts
from trmon.app.batches.endpoints import router as batches
from trmon.app.bounds.endpoints import router as bounds
from trmon.app.construction import running
from trmon.app.decisions.endpoints import router as decisions
from trmon.app.deliveries.endpoints import router as deliveries
from trmon.app.diagnosis.endpoints import router as diagnosis
from trmon.app.distribution.endpoints import router as distribution
from trmon.app.events.endpoints import router as events
from trmon.app.fleet.endpoints import router as fleet
from trmon.app.health.endpoints import router as health
from trmon.app.http import problems
from trmon.app.http.body import WholeBody
from trmon.app.http.compression import CompressedReads
from trmon.app.http.edge import Edge
from trmon.app.http.ratelimit import RateLimit
from trmon.app.metrics.endpoints import router as metrics
from trmon.app.page.endpoints import router as page
from trmon.app.policies.endpoints import router as policies
from trmon.app.reports.endpoints import router as reports
from trmon.app.reports.openapi import schemas
from trmon.app.reports.shortway import ShortWay
from trmon.app.rules.endpoints import router as rules
from trmon.app.runs.endpoints import router as runs
from trmon.app.settings import Settings
from trmon.app.signals.endpoints import router as signals
from trmon.app.silences.endpoints import router as silences
from trmon.app.tokens.endpoints import router as tokens
from trmon.app.whatif.endpoints import router as whatif
from trmon.domain.errors import NotReady

log = structlog.get_logger(__name__)

ROUTERS = (
    *(reports, runs, signals, batches, policies, alerts, silences, deliveries, rules, bounds, events, tokens),
    *(diagnosis, metrics, health, page),
    *(whatif, adaptation, advice, fleet, distribution, decisions),
)


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI app; it opens its database when it is started."""
    is_shared = settings.redis_url is not None
    limit = RateLimit(per_second=settings.rate_per_second, burst=settings.rate_burst, is_shared=is_shared)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with running(settings, limit=limit) as app.state.parts:
                yield
        except NotReady as error:
            app.state.failure = str(error)
            raise
        except Exception:
            log.exception("service_failed")
            raise

    app = FastAPI(
        title="trmon",
        version=version("trmon"),
        lifespan=lifespan,
        middleware=_middleware(settings, limit),
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router, responses=problems.RESPONSES)
    _describe_the_wire(app)
    return app


def _middleware(settings: Settings, limit: RateLimit) -> list[Middleware]:
    """Return what every request passes, outermost first."""
    bodies = WholeBody(max_bytes=settings.max_body_bytes, max_held_bytes=settings.max_held_bytes)
    return [
        Middleware(Edge, hosts=settings.answered_hosts, limit=limit, bodies=bodies),
        Middleware(ShortWay),
        Middleware(CompressedReads),
    ]


def _describe_the_wire(app: FastAPI) -> None:
    """Add the wire's structs to OpenAPI, where the ingest routes name them."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document["components"]["schemas"].update(schemas())
        return document

    app.openapi = openapi  # type: ignore[method-assign]

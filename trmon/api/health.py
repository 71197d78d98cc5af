"""Liveness and readiness probes."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.components import Service
from trmon_client.api.administration import HealthInfo

router = APIRouter(tags=["health"], route_class=AnswerRoute)


@router.get("/healthz")
async def get_liveness() -> HealthInfo:
    """Succeed while the process responds."""
    return HealthInfo.from_fields()


@router.get("/readyz")
async def get_readiness(service: Service) -> HealthInfo:
    """Succeed if the store responds and its writer, the worker and the dispatcher are running; 503 otherwise."""
    await service.readiness.check()
    return HealthInfo.from_fields()

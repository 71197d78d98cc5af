"""Liveness and readiness probes."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.health.schemas import HealthOut
from trmon.api.http.components import Service

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def get_liveness() -> HealthOut:
    """Succeed while the process responds."""
    return HealthOut()


@router.get("/readyz")
async def get_readiness(service: Service) -> HealthOut:
    """Succeed if the store responds and its writer, the worker and the dispatcher are running; 503 otherwise."""
    await service.readiness.check()
    return HealthOut()

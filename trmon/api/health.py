"""Liveness and readiness probes."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from trmon.api.http.components import Service


class HealthOut(BaseModel):
    """Success; failures are problem responses."""

    status: str = "ok"


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

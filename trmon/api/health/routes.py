"""Health: alive is whether the process answers, ready is whether it can do its work."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from trmon.api.http.components import Service

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """That all is well; anything else is a problem."""

    status: str = "ok"


@router.get("/healthz")
async def get_liveness() -> HealthOut:
    """Say that the process is alive."""
    return HealthOut()


@router.get("/readyz")
async def get_readiness(service: Service) -> HealthOut:
    """Say that the store answers, and that its writer, the worker and the notifier are at work; 503 otherwise."""
    await service.readiness.check()
    return HealthOut()

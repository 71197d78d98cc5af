"""Health: alive is whether the process answers, ready is whether it can do its work."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from trmon.app.parts import Service
from trmon.domain.errors import NotReady

router = APIRouter(tags=["health"])


class HealthOut(BaseModel):
    """That all is well; anything else is a problem."""

    status: str = "ok"


@router.get("/healthz")
async def alive() -> HealthOut:
    """Say that the process is alive."""
    return HealthOut()


@router.get("/readyz")
def ready(service: Service) -> HealthOut:
    """Say that the store answers, and that its writer, the worker and the notifier are at work; 503 otherwise."""
    service.store.check()
    for name, part in (("worker", service.worker), ("notifier", service.notifier)):
        if not part.alive:
            raise NotReady(f"the {name} has stopped; the service's log says why")
    return HealthOut()

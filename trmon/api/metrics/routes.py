"""The /metrics route: active runs and the service's own counters, for Prometheus."""

from __future__ import annotations

import time

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader

router = APIRouter(tags=["metrics"])

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(access: Reader, service: Service) -> PlainTextResponse:
    """Return the active runs that the caller may see and, without a project's token, the service's counters."""
    runs = service.exposition.text(service.view_cache.active(time.time()), project=access.project)
    counters = "" if access.project is not None else generate_latest(service.counters.registry).decode()
    return PlainTextResponse(counters + runs, media_type=MEDIA_TYPE)

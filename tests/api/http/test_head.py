"""HEAD: every route that answers GET answers it with the same status and headers, and without the body."""

from __future__ import annotations

import httpx
import pytest
from fastapi.routing import APIRoute

from trmon.bootstrap.app import ROUTERS

PATHS = sorted(
    route.path
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
)
STREAM = "/api/v1/events"


@pytest.mark.parametrize("path", [path for path in PATHS if path != STREAM])
def test_head_answers_as_get_without_the_body(shared: httpx.Client, path: str) -> None:
    path = path.replace("{path:path}", "app.js").replace("{", "").replace("}", "")
    got, head = shared.get(path), shared.head(path)
    assert got.content
    assert head.content == b""
    assert head.status_code == got.status_code
    changing = {"date", "content-length"} if path == "/metrics" else {"date"}
    assert {k: v for k, v in head.headers.items() if k not in changing} == {
        k: v for k, v in got.headers.items() if k not in changing
    }


def test_head_of_the_event_stream_ends(shared: httpx.Client) -> None:
    answer = shared.head(STREAM)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert shared.head("/healthz").status_code == 200


def test_head_is_refused_where_get_is(shared: httpx.Client) -> None:
    answer = shared.head("/api/v1/reports")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert shared.post("/healthz").headers["allow"] == "GET, HEAD"

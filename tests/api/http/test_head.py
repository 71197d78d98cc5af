"""HEAD: every route that answers GET answers it with the same status and headers, and without the body."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.fixtures.service import ThreadedService
from trmon.bootstrap.app import ROUTERS

PATHS = sorted(
    route.path
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
)
STREAM = "/api/v1/events"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service for all tests."""
    service = ThreadedService(tmp_path_factory.mktemp("data"))
    with service.client() as client:
        yield client
    service.stop()


@pytest.mark.parametrize("path", [path for path in PATHS if path != STREAM])
def test_head_answers_as_get_without_the_body(client: httpx.Client, path: str) -> None:
    path = path.replace("{path:path}", "app.js").replace("{", "").replace("}", "")
    got, head = client.get(path), client.head(path)
    assert got.content
    assert head.content == b""
    assert head.status_code == got.status_code
    changing = {"date", "content-length"} if path == "/metrics" else {"date"}
    assert {k: v for k, v in head.headers.items() if k not in changing} == {
        k: v for k, v in got.headers.items() if k not in changing
    }


def test_head_of_the_event_stream_ends(client: httpx.Client) -> None:
    answer = client.head(STREAM)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert client.head("/healthz").status_code == 200


def test_head_is_refused_where_get_is(client: httpx.Client) -> None:
    answer = client.head("/api/v1/reports")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert client.post("/healthz").headers["allow"] == "GET, HEAD"

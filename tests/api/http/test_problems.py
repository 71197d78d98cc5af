"""Errors are problem details with a matching status and without internals; HEAD answers as GET, without the body."""

from __future__ import annotations

from http import HTTPStatus

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from trmon.api.http.problems import STATUSES, status_of
from trmon.bootstrap.app import ROUTERS
from trmon.domain import errors

RUN = "/api/v1/runs/math/grpo"
JSON = {"Content-Type": "application/json"}

CASES: dict[str, tuple[str, str, dict[str, object], str]] = {
    "a body that is no JSON": ("PUT", f"{RUN}/policy", {"content": b"{", "headers": JSON}, "1"),
    "a place that is none": ("GET", "/api/v1/events", {"headers": {"Last-Event-ID": "x"}}, "last-event-id"),
}


@pytest.fixture(scope="module")
def trained(shared: httpx.Client) -> httpx.Client:
    train(shared, steps=[0])
    return shared


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_a_problem_that_names_the_field(trained: httpx.Client, case: str) -> None:
    method, path, options, field = CASES[case]
    answer = trained.request(method, path, **options)  # type: ignore[arg-type]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["field"]) == (400, 400, field)
    assert problem["type"].startswith("urn:trmon:problem:")
    assert problem["title"]
    assert problem["detail"]


def test_a_list_is_read_whole_whether_repeated_or_separated_by_commas(trained: httpx.Client) -> None:
    first, second = "reward_mean", "mask_rate"
    queries = (f"names={first}&names={second}", f"names={first},{second}")
    repeated, separated = (trained.get(f"{RUN}/signals?{query}").json()["signals"] for query in queries)
    assert list(repeated) == list(separated) == [first, second]


def test_an_internal_error_reveals_no_details(service: ThreadedService, client: httpx.Client) -> None:
    async def broken() -> None:
        raise RuntimeError("the password is swordfish")

    async def damaged() -> None:
        raise errors.TrmonError("a stored report is damaged")

    internal = {"type": "urn:trmon:problem:internal", "title": "Internal Server Error", "status": 500}
    service.app.router.add_api_route("/damaged", damaged)
    of_domain = client.get("/damaged")
    assert (of_domain.status_code, of_domain.headers["content-type"]) == (500, "application/problem+json")
    assert of_domain.json() == internal | {"detail": "a stored report is damaged"}
    service.app.router.add_api_route("/broken", broken)
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert answer.json().items() >= internal.items()


def subclasses(root: type[errors.TrmonError]) -> set[type[errors.TrmonError]]:
    """Return all subclasses of a class."""
    return {found for child in root.__subclasses__() for found in (child, *subclasses(child))}


def test_every_domain_error_has_a_status() -> None:
    tree: set[type[errors.TrmonError]] = {errors.TrmonError, *subclasses(errors.TrmonError)}
    assert {error for error in tree if error.__module__ == errors.__name__} <= STATUSES.keys()
    assert all(status_of(error)[0] >= HTTPStatus.BAD_REQUEST for error in tree)


def test_a_subclass_without_a_status_inherits_its_bases() -> None:
    class Moved(errors.NotFound):
        """An error class without a status of its own."""

    class Broken(errors.TrmonError):
        """An internal error class."""

    assert [status_of(Moved), status_of(Broken)] == [STATUSES[errors.NotFound], STATUSES[errors.TrmonError]]


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

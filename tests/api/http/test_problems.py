"""Errors are problem details with a matching status and without internals."""

from __future__ import annotations

from http import HTTPStatus

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from trmon.api.http.problems import STATUSES, status_of
from trmon.domain import errors
from trmon.store.rows import mapping

RUN = "/api/v1/runs/math/grpo"
JSON = {"Content-Type": "application/json"}

CASES: list[tuple[str, str, str, dict[str, object], int, str | None]] = [
    ("an unknown route", "GET", "/api/v1/nothing", {}, 404, None),
    ("a method the route lacks", "DELETE", "/api/v1/rules", {}, 405, None),
    ("a run that is not there", "GET", "/api/v1/runs/math/other", {}, 404, None),
    ("a name that is none", "GET", "/api/v1/runs/math/-x", {}, 400, "run"),
    ("a limit that is no number", "GET", "/api/v1/runs", {"params": {"limit": "x"}}, 400, "limit"),
    ("a limit too large", "GET", "/api/v1/runs", {"params": {"limit": "5000"}}, 400, "limit"),
    ("a cursor that is none", "GET", "/api/v1/runs", {"params": {"after": "x"}}, 400, "after"),
    ("a state that is none", "GET", "/api/v1/runs", {"params": {"state": "bored"}}, 400, "state"),
    ("no names", "GET", f"{RUN}/signals", {}, 400, "names"),
    ("too many names", "GET", f"{RUN}/signals", {"params": {"names": ",".join(map(str, range(200)))}}, 400, "names"),
    ("a step that is none", "GET", f"{RUN}/batches/x", {}, 400, "step"),
    ("a step that was not", "GET", f"{RUN}/batches/99", {}, 404, None),
    ("a policy that is none", "PUT", f"{RUN}/policy", {"json": {"policy": "wisdom"}}, 400, "policy"),
    ("a field that is none", "PUT", f"{RUN}/policy", {"json": {"policy": "trm", "colour": 1}}, 400, "colour"),
    (
        "a body that is no JSON",
        "PUT",
        f"{RUN}/policy",
        {"content": b"{", "headers": {"Content-Type": "application/json"}},
        400,
        "1",
    ),
    (
        "a horizon of nothing",
        "GET",
        "/api/v1/bounds",
        {"params": {"horizon": 0, "kl_max": 1, "kl_seq": 1}},
        400,
        "horizon",
    ),
    (
        "a divergence below zero",
        "GET",
        "/api/v1/bounds",
        {"params": {"horizon": 9, "kl_max": -1, "kl_seq": 1}},
        400,
        "kl_max",
    ),
    ("a stream of no run", "GET", "/api/v1/events", {"params": {"run": "grpo"}}, 400, "run"),
    ("a place that is none", "GET", "/api/v1/events", {"headers": {"Last-Event-ID": "x"}}, 400, "last-event-id"),
]


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "field"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_an_error_is_a_problem_that_names_the_field(
    client: httpx.Client, method: str, path: str, options: dict[str, object], status: int, field: str | None
) -> None:
    train(client, steps=[0])
    answer = client.request(method, path, **options)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:trmon:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert problem.get("field") == field


def test_an_internal_error_reveals_no_details(service: ThreadedService, client: httpx.Client) -> None:
    async def broken() -> None:
        raise RuntimeError("the password is swordfish")

    service.app.router.add_api_route("/broken", broken)
    answer = client.get("/broken")
    assert answer.status_code == 500
    assert "swordfish" not in answer.text
    assert answer.json()["type"] == "urn:trmon:problem:internal"


def test_a_plain_domain_error_is_a_problem(service: ThreadedService, client: httpx.Client) -> None:
    async def damaged() -> None:
        raise errors.TrmonError("a stored report is damaged")

    service.app.router.add_api_route("/damaged", damaged)
    answer = client.get("/damaged")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:trmon:problem:internal",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "a stored report is damaged",
    }


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


@pytest.mark.parametrize(
    "path", ["batches?attempt_id=", "batches/1?attempt_id=", "signals?names=x&attempt_id=", "reasons?attempt_id="]
)
def test_an_id_above_the_databases_range_is_refused(client: httpx.Client, path: str) -> None:
    train(client, steps=range(2))
    answer = client.get(f"/api/v1/runs/math/grpo/{path}{10**30}")
    assert (answer.status_code, answer.json()["field"]) == (400, "attempt_id")


def test_a_cursor_above_the_databases_range_is_refused(client: httpx.Client) -> None:
    answer = client.get("/api/v1/runs", params={"after": mapping.encode_cursor(1 << 63)})
    assert (answer.status_code, answer.json()["field"]) == (400, "after")

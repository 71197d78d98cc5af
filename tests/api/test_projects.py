"""Every route, called with another project's token, shows and changes nothing of this project.

A route without a case here fails the first test: whoever adds one says what a stranger gets.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.fixtures.alerting import crash
from tests.fixtures.messages import report
from tests.fixtures.running_service import bearer, make_token
from tests.fixtures.service import ThreadedService
from trmon.domain.access import Scope
from trmon_client.core import wire

RUN = "/api/v1/runs/{project}/{run}"
TRACES = ("grpo", "dapo", "total_kl_k3", "root")
"""Names of the run, its tag, its signals and its owner's token, which a stranger must never see."""

CRASHED = "1/crashed"

HIDDEN = 404
FORBIDDEN = 403
EMPTY = 200
"""The responses to a stranger: not found, forbidden, or a response without a trace of the project."""

BELOW_A_RUN = {
    "GET": (
        *("", "/attempts", "/marks", "/signals/names", "/signals/scalars", "/signals", "/reasons", "/distribution"),
        *("/diagnosis", "/budget", "/runbook", "/report.html", "/policy", "/policy/history", "/notes", "/adaptation"),
        *("/batches", "/batches/{step}", "/batches/{step}/decisions", "/batches/{step}/sequences"),
    ),
    "POST": ("/policy/rollback", "/whatif", "/notes"),
    "PUT": ("/policy", "/adaptation"),
    "PATCH": ("",),
    "DELETE": ("", "/notes/{note_id}"),
}
CASES: dict[tuple[str, str], int] = {
    **{(method, f"{RUN}{path}"): HIDDEN for method, paths in BELOW_A_RUN.items() for path in paths},
    ("POST", f"{RUN}/reports"): FORBIDDEN,
    ("POST", "/api/v1/reports"): EMPTY,
    ("GET", "/api/v1/runs"): EMPTY,
    ("GET", "/api/v1/compare"): HIDDEN,
    ("GET", "/api/v1/fleet"): EMPTY,
    ("GET", "/api/v1/fleet/named"): EMPTY,
    ("GET", "/api/v1/alerts"): EMPTY,
    ("GET", "/api/v1/alerts/events"): EMPTY,
    ("GET", "/api/v1/alerts/budget"): EMPTY,
    ("POST", "/api/v1/rules/{name}/whatif"): HIDDEN,
    ("POST", "/api/v1/alerts/{identity}/ack"): HIDDEN,
    ("POST", "/api/v1/alerts/ack"): EMPTY,
    ("GET", "/api/v1/silences"): EMPTY,
    ("POST", "/api/v1/silences/preview"): FORBIDDEN,
    ("POST", "/api/v1/silences"): FORBIDDEN,
    ("DELETE", "/api/v1/silences/{silence_id}"): HIDDEN,
    ("GET", "/api/v1/deliveries"): EMPTY,
    ("GET", "/api/v1/tokens"): EMPTY,
    ("POST", "/api/v1/tokens"): FORBIDDEN,
    ("POST", "/api/v1/tokens/{name}/rotate"): HIDDEN,
    ("DELETE", "/api/v1/tokens/{name}"): HIDDEN,
    ("GET", "/api/v1/audit"): EMPTY,
    ("GET", "/api/v1/quotas"): EMPTY,
    ("PUT", "/api/v1/quotas/{project}"): FORBIDDEN,
    ("GET", "/metrics"): EMPTY,
}
ELSEWHERE = {("GET", "/api/v1/events"): "tests/api/test_events.py: a stream has no end to look at"}
OF_NO_PROJECT = {
    ("GET", path)
    for path in (
        *("/api/v1/signals", "/api/v1/rules", "/api/v1/rules/file", "/api/v1/rules/{name}", "/api/v1/bounds"),
        "/api/v1/deliveries/receivers",
        *("/healthz", "/readyz", "/pictures/{name}"),
        *("/", "/alerts", "/compare", "/docs", "/rules/{name}", "/runs/{project}/{run}", "/assets/{version}/{path}"),
    )
}

SILENCE = {"project": "math", "matchers": [{"label": "run", "operator": "=", "value": "grpo"}], "seconds": 60}

BODIES: dict[tuple[str, str], dict[str, object]] = {
    ("POST", f"{RUN}/reports"): {"content": wire.encode(report()), "headers": {"Content-Type": wire.MSGPACK}},
    ("POST", "/api/v1/reports"): {
        "content": wire.encode_bundle([wire.encode(report(project="math", run="stolen"))]),
        "headers": {"Content-Type": wire.MSGPACK},
    },
    ("PATCH", RUN): {"json": {"owner": "thief"}},
    ("PUT", f"{RUN}/policy"): {"json": {"policy": "trm"}},
    ("POST", f"{RUN}/policy/rollback"): {"json": {}},
    ("POST", f"{RUN}/whatif"): {"json": {"policy": "trm"}},
    ("POST", f"{RUN}/notes"): {"json": {"text": "mine"}},
    ("PUT", f"{RUN}/adaptation"): {"json": {"mode": "apply"}},
    ("POST", "/api/v1/tokens"): {"json": {"name": "x", "scopes": ["read"], "project": "math"}},
    ("POST", "/api/v1/tokens/{name}/rotate"): {"json": {}},
    ("PUT", "/api/v1/quotas/{project}"): {"json": {"max_runs": 1}},
    ("GET", "/api/v1/audit"): {"params": {"project": "math"}},
    ("GET", f"{RUN}/signals"): {"params": {"names": "mask_rate"}},
    ("GET", "/api/v1/compare"): {"params": {"runs": "math/grpo"}},
    ("GET", "/api/v1/fleet/named"): {"params": {"runs": "math/grpo"}},
    ("POST", "/api/v1/alerts/{identity}/ack"): {"json": {"note": "mine"}},
    ("POST", "/api/v1/silences"): {"json": SILENCE},
    ("POST", "/api/v1/silences/preview"): {"json": SILENCE},
    ("POST", "/api/v1/rules/{name}/whatif"): {"json": {"limit_id": "0", "limit": 1.0}},
    ("POST", "/api/v1/alerts/ack"): {"json": {"identities": [CRASHED]}},
    ("GET", "/api/v1/alerts"): {"params": {"project": "math"}},
    ("GET", "/api/v1/alerts/events"): {"params": {"identity": "1/crashed"}},
}


@pytest.fixture(scope="module")
def admin(shared: httpx.Client) -> httpx.Client:
    """A client with every right; the run `math/grpo` has crashed, and has a silence, a quota and a note."""
    shared.headers.update(bearer(make_token(shared, "root", Scope.ADMIN)))
    crash(shared)
    assert shared.post("/api/v1/silences", json=SILENCE).status_code == 201
    assert shared.put("/api/v1/quotas/math", json={"max_runs": 9}).status_code == 200
    assert shared.post("/api/v1/runs/math/grpo/notes", json={"text": "restarted"}).status_code == 201
    return shared


@pytest.fixture(scope="module")
def stranger(admin: httpx.Client, shared_service: ThreadedService) -> Iterator[httpx.Client]:
    """A client with every scope, of another project."""
    scopes = (Scope.ADMIN, Scope.READ, Scope.INGEST)
    token = make_token(admin, "stranger", *scopes, project="code")
    with shared_service.client(headers=bearer(token)) as client:
        yield client


def routes_of(service: ThreadedService) -> set[tuple[str, str]]:
    document = service.app.openapi()["paths"]
    described = {(method.upper(), path) for path, methods in document.items() for method in methods}
    return described | {
        (method, route.path_format)
        for router in _routers(service.app.router)
        for route in router
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def _routers(router: object) -> Iterator[list[object]]:
    routes = list(getattr(router, "routes", []))
    yield routes
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _routers(inner)


def test_every_route_has_a_case(shared_service: ThreadedService) -> None:
    routes = routes_of(shared_service)
    assert len(routes) > 25
    assert routes == CASES.keys() | ELSEWHERE.keys() | OF_NO_PROJECT


@pytest.mark.parametrize(("method", "path"), CASES, ids=lambda part: part)
def test_a_stranger_sees_and_changes_nothing(
    stranger: httpx.Client, admin: httpx.Client, method: str, path: str
) -> None:
    before = everything(admin)
    place = path.format(project="math", run="grpo", step=1, name="root", identity=CRASHED, silence_id=1, note_id=1)
    answer = stranger.request(method, place, **BODIES.get((method, path), {}))  # type: ignore[arg-type]
    assert answer.status_code == CASES[method, path], answer.text
    if answer.status_code == EMPTY:
        assert not [trace for trace in TRACES if trace in answer.text]
    assert everything(admin) == before


def test_a_stranger_cannot_tell_whether_a_run_exists(stranger: httpx.Client) -> None:
    there = stranger.get("/api/v1/runs/math/grpo")
    nowhere = stranger.get("/api/v1/runs/math/none")
    assert there.json() | {"detail": ""} == nowhere.json() | {"detail": ""}
    assert there.json()["detail"].replace("grpo", "none") == nowhere.json()["detail"]


def everything(admin: httpx.Client) -> list[str]:
    """Return everything that a stranger could have changed."""
    run = "runs/math/grpo?include=policies,notes,adaptation"
    paths = ("alerts", "silences", "runs", run, "quotas", "audit")
    tokens = [token | {"last_used_at": None} for token in admin.get("/api/v1/tokens").json()]
    return [*(admin.get(f"/api/v1/{path}").text for path in paths), str(tokens)]

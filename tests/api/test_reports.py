"""The fast path of reports accepts, refuses and responds exactly as the routes do."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from tests.fixtures.messages import ORIGIN, as_json, columns, report
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from trmon.api.http.rate_limit import RateLimit
from trmon.api.reports import FastPath
from trmon.bootstrap.app import create_app
from trmon.config.settings import Settings
from trmon.domain.access import Scope
from trmon_client.core import wire

ONE, MANY = "/api/v1/runs/math/grpo/reports", "/api/v1/reports"
MAX_BODY_BYTES = 1 << 20
GZIP = {"Content-Type": wire.MSGPACK, "Content-Encoding": "gzip"}
MSGPACK, JSON = {"Content-Type": wire.MSGPACK}, {"Content-Type": wire.JSON}
BODY = wire.encode(report())
PACKED = report(columns={}, histograms={}, parcel=wire.pack_columns(columns()))
BROKEN = report(columns={}, histograms={}, parcel=msgspec.structs.replace(wire.pack_columns(columns()), data=b"?"))
START = wire.encode(wire.Start(**ORIGIN, project="math", run="grpo", policy={"name": "p", "criteria": []}))
BUNDLE = wire.encode_bundle([START, BODY, b"\xc0", wire.encode(report(project="math", run="-x"))])


@dataclass(frozen=True)
class Case:
    """A request, and its expected status; `token` names the sender's token."""

    name: str
    status: int
    path: str = ONE
    content: Any = BODY
    headers: dict[str, str] = field(default_factory=lambda: MSGPACK)
    method: str = "POST"
    token: str = "sender"


CASES = [
    Case("a report", 200),
    Case("the same one again", 200),
    Case("the same one as JSON", 200, content=as_json(report()), headers=JSON),
    Case("another one under the same identity", 409, content=wire.encode(report(columns(seed=1)))),
    Case(
        "a report with the client's decision", 200, content=wire.encode(report(step=2, accepted=b"\x05", policy="ab"))
    ),
    Case("the same one in a parcel", 200, content=wire.encode(PACKED)),
    Case("a damaged parcel", 400, content=wire.encode(BROKEN)),
    Case("a compressed one", 200, content=gzip.compress(BODY), headers=GZIP),
    Case("a body in chunks", 200, content=[BODY[:1000], BODY[1000:]]),
    Case("a start", 200, content=START),
    Case("a heartbeat", 200, content=wire.encode(wire.Heartbeat(**ORIGIN))),
    Case("a content type with a parameter", 200, headers={"Content-Type": f"{wire.MSGPACK.upper()}; version=1"}),
    Case("a run of odd letters", 400, path="/api/v1/runs/math/%2e%2e/reports"),
    Case("a run with a slash", 404, path="/api/v1/runs/math/gr%2Fpo/reports"),
    Case("a run that is too long", 400, path=f"/api/v1/runs/math/{'r' * 300}/reports"),
    Case("a bundle", 200, path=MANY, content=BUNDLE),
    Case("an invalid bundle", 400, path=MANY, content=BODY),
    Case("a bundle of nothing", 400, path=MANY, content=b""),
    Case("an invalid report", 400, content=b"\xc0"),
    Case("a negative step", 400, content=wire.encode(report(step=-1))),
    Case("invalid JSON", 400, content=b"{", headers=JSON),
    Case("no content type", 415, headers={}),
    Case("another content type", 415, path=MANY, headers={"Content-Type": "text/plain"}),
    Case("another encoding", 415, headers=MSGPACK | {"Content-Encoding": "br"}),
    Case("invalid gzip", 400, headers=GZIP),
    Case("a bomb", 413, content=gzip.compress(bytes(MAX_BODY_BYTES + 1)), headers=GZIP),
    Case("a body too large", 413, path=MANY, content=bytes(MAX_BODY_BYTES + 1)),
    Case("a body without a length that is too large", 413, content=[bytes(MAX_BODY_BYTES), b"+"]),
    Case("a foreign host", 403, headers=MSGPACK | {"Host": "evil.example"}),
    Case("another site's page", 403, headers=MSGPACK | {"Origin": "https://evil.example"}),
    Case("a cross-site page", 403, path=MANY, headers=MSGPACK | {"Sec-Fetch-Site": "cross-site"}),
    Case("no token", 401, token="nobody"),
    Case("an unknown token", 401, path=MANY, token="unknown"),
    Case("a read-only token", 403, token="reader"),
    Case("a bundle with a read-only token", 403, path=MANY, token="reader"),
    Case("a token of another project", 403, token="stranger"),
    Case("a bundle with another project's token", 200, path=MANY, content=BUNDLE, token="stranger"),
    Case("too many requests", 429, token="eager"),
    Case("a GET request", 405, method="GET"),
    Case("another method", 405, path=MANY, method="PUT"),
    Case("a longer path", 404, path=f"{ONE}/1"),
    Case("a path with a trailing slash", 307, path=f"{MANY}/"),
]


class Variant:
    """A service with or without the fast path, and its tokens by name."""

    def __init__(self, folder: Path, app_of: Callable[[Settings], FastAPI]) -> None:
        given = {"max_body_bytes": MAX_BODY_BYTES, "rate_per_second": 1e-3, "rate_burst": 1000}
        self.service = ThreadedService(folder, app_of=app_of, **given)
        self._limit = cast(RateLimit, self.service.app.user_middleware[0].kwargs["limit"])
        self._tokens = {"unknown": "trmon_unknown"}
        with self.service.client() as admin:
            admin.headers["Authorization"] = f"Bearer {make_token(admin, 'root', Scope.ADMIN)}"
            for name, scope, project in (
                ("sender", Scope.INGEST, "math"),
                ("reader", Scope.READ, "math"),
                ("stranger", Scope.INGEST, "physics"),
                ("eager", Scope.INGEST, "math"),
            ):
                self._tokens[name] = make_token(admin, name, scope, project=project)
        self._client = self.service.client(follow_redirects=False)

    def send(self, case: Case) -> httpx.Response:
        """Return the response to a request, without its date and with a relative location."""
        now = time.monotonic()
        self._limit.take("math/eager", now=now)
        self._limit.sync({"math/eager": 0.0}, now=now)
        token = self._tokens.get(case.token)
        headers = case.headers | ({} if token is None else {"Authorization": f"Bearer {token}"})
        content = iter(case.content) if isinstance(case.content, list) else case.content
        answer = self._client.request(case.method, case.path, content=content, headers=headers)
        del answer.headers["date"]
        if "location" in answer.headers:
            answer.headers["location"] = answer.headers["location"].removeprefix(self.service.url)
        return answer

    def stop(self) -> None:
        """Stop the service."""
        self._client.close()
        self.service.stop()


def without_fast_path(settings: Settings) -> FastAPI:
    """Return the service with only the routes."""
    app = create_app(settings)
    app.user_middleware = [layer for layer in app.user_middleware if layer.cls is not FastPath]
    assert len(app.user_middleware) == len(create_app(settings).user_middleware) - 1
    return app


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Variant]]:
    """A service with the fast path, and one without it."""
    variants = [Variant(tmp_path_factory.mktemp("data"), app_of) for app_of in (create_app, without_fast_path)]
    yield variants
    for variant in variants:
        variant.stop()


def assert_alike(variants: list[Variant], case: Case) -> None:
    """Send a request to both services, and compare status, content and headers."""
    fast, routed = (variant.send(case) for variant in variants)
    assert fast.status_code == case.status, fast.text
    assert (fast.status_code, fast.content) == (routed.status_code, routed.content)
    assert sorted(fast.headers.multi_items()) == sorted(routed.headers.multi_items())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_fast_path_and_the_routes_respond_alike(variants: list[Variant], case: Case) -> None:
    assert_alike(variants, case)


def test_the_fast_path_and_the_routes_respond_alike_at_shutdown(variants: list[Variant]) -> None:
    for variant in variants:
        variant.service.app.state.components.store.writer.close()
    assert_alike(variants, Case("a report at the end", 503))

"""The short way of reports: it takes, refuses and answers all that the routes do, and as they do."""

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
from trmon.api.reports.fast_path import FastPath
from trmon.bootstrap.app import create_app
from trmon.config.settings import Settings
from trmon.domain.model.access import Scope
from trmon_client.core import wire

ONE, MANY = "/api/v1/runs/math/grpo/reports", "/api/v1/reports"
MAX_BODY_BYTES = 1 << 20
GZIP = {"Content-Type": wire.MSGPACK, "Content-Encoding": "gzip"}
MSGPACK, JSON = {"Content-Type": wire.MSGPACK}, {"Content-Type": wire.JSON}
BODY = wire.encode(report())
SHIPPED = report(columns={}, histograms={}, parcel=wire.pack_columns(columns()))
BROKEN = report(columns={}, histograms={}, parcel=msgspec.structs.replace(wire.pack_columns(columns()), data=b"?"))
START = wire.encode(wire.Start(**ORIGIN, project="math", run="grpo", policy={"name": "p", "criteria": []}))
BUNDLE = wire.encode_bundle([START, BODY, b"\xc0", wire.encode(report(project="math", run="-x"))])


@dataclass(frozen=True)
class Case:
    """A request, and the status of its answer; `token` is the name of who sends it."""

    says: str
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
    Case("one that the client has decided", 200, content=wire.encode(report(step=2, accepted=b"\x05", policy="ab"))),
    Case("the same one in a parcel", 200, content=wire.encode(SHIPPED)),
    Case("a parcel that cannot be opened", 400, content=wire.encode(BROKEN)),
    Case("a compressed one", 200, content=gzip.compress(BODY), headers=GZIP),
    Case("one in pieces", 200, content=[BODY[:1000], BODY[1000:]]),
    Case("a start", 200, content=START),
    Case("a heartbeat", 200, content=wire.encode(wire.Heartbeat(**ORIGIN))),
    Case("a content type with a parameter", 200, headers={"Content-Type": f"{wire.MSGPACK.upper()}; version=1"}),
    Case("a run of odd letters", 400, path="/api/v1/runs/math/%2e%2e/reports"),
    Case("a run with a slash", 404, path="/api/v1/runs/math/gr%2Fpo/reports"),
    Case("a run that is too long", 400, path=f"/api/v1/runs/math/{'r' * 300}/reports"),
    Case("a bundle", 200, path=MANY, content=BUNDLE),
    Case("a bundle that is none", 400, path=MANY, content=BODY),
    Case("a bundle of nothing", 400, path=MANY, content=b""),
    Case("a report that is none", 400, content=b"\xc0"),
    Case("a negative step", 400, content=wire.encode(report(step=-1))),
    Case("JSON that is none", 400, content=b"{", headers=JSON),
    Case("no content type", 415, headers={}),
    Case("another content type", 415, path=MANY, headers={"Content-Type": "text/plain"}),
    Case("another encoding", 415, headers=MSGPACK | {"Content-Encoding": "br"}),
    Case("gzip that is none", 400, headers=GZIP),
    Case("a bomb", 413, content=gzip.compress(bytes(MAX_BODY_BYTES + 1)), headers=GZIP),
    Case("a body too large", 413, path=MANY, content=bytes(MAX_BODY_BYTES + 1)),
    Case("a body too large that does not say so", 413, content=[bytes(MAX_BODY_BYTES), b"+"]),
    Case("a foreign host", 403, headers=MSGPACK | {"Host": "evil.example"}),
    Case("another site's page", 403, headers=MSGPACK | {"Origin": "https://evil.example"}),
    Case("a page of nowhere", 403, path=MANY, headers=MSGPACK | {"Sec-Fetch-Site": "cross-site"}),
    Case("nobody", 401, token="nobody"),
    Case("an unknown token", 401, path=MANY, token="unknown"),
    Case("one who may only read", 403, token="reader"),
    Case("one who may only read, and many", 403, path=MANY, token="reader"),
    Case("one of another project", 403, token="stranger"),
    Case("one of another project, and many", 200, path=MANY, content=BUNDLE, token="stranger"),
    Case("one who sends too often", 429, token="eager"),
    Case("a page in the browser", 405, method="GET"),
    Case("another method", 405, path=MANY, method="PUT"),
    Case("a path that goes on", 404, path=f"{ONE}/1"),
    Case("a path that ends in a slash", 307, path=f"{MANY}/"),
]


class Way:
    """A service that is asked in one way, and its tokens by the names of their owners."""

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

    def ask(self, case: Case) -> httpx.Response:
        """Return the answer to a request; of its headers, without when it was given and where."""
        now = time.monotonic()
        self._limit.take("eager", now=now)
        self._limit.sync({"eager": 0.0}, now=now)
        token = self._tokens.get(case.token)
        headers = case.headers | ({} if token is None else {"Authorization": f"Bearer {token}"})
        content = iter(case.content) if isinstance(case.content, list) else case.content
        answer = self._client.request(case.method, case.path, content=content, headers=headers)
        del answer.headers["date"]
        if "location" in answer.headers:
            answer.headers["location"] = answer.headers["location"].removeprefix(self.service.url)
        return answer

    def stop(self) -> None:
        """End the service."""
        self._client.close()
        self.service.stop()


def without_short_way(settings: Settings) -> FastAPI:
    """Return the service with the routes alone."""
    app = create_app(settings)
    app.user_middleware = [layer for layer in app.user_middleware if layer.cls is not FastPath]
    assert len(app.user_middleware) == len(create_app(settings).user_middleware) - 1
    return app


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Way]]:
    """A service with the short way, and one without it."""
    ways = [Way(tmp_path_factory.mktemp("data"), app_of) for app_of in (create_app, without_short_way)]
    yield ways
    for way in ways:
        way.stop()


def assert_alike(ways: list[Way], case: Case) -> None:
    """Ask both ways, and compare status, content and headers."""
    short, long = (way.ask(case) for way in ways)
    assert short.status_code == case.status, short.text
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert sorted(short.headers.multi_items()) == sorted(long.headers.multi_items())


@pytest.mark.parametrize("case", CASES, ids=[case.says for case in CASES])
def test_both_ways_answer_alike(ways: list[Way], case: Case) -> None:
    assert_alike(ways, case)


def test_both_ways_say_alike_that_the_service_ends(ways: list[Way]) -> None:
    for way in ways:
        way.service.app.state.components.store.writer.close()
    assert_alike(ways, Case("a report at the end", 503))

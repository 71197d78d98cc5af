"""Posted reports over HTTP: what the endpoints of one message and of a bundle accept and refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fixtures.messages import ORIGIN, as_json, report
from tests.fixtures.running_service import bearer, make_token
from tests.fixtures.service import ThreadedService
from trmon.domain.access import Scope
from trmon_client.core import wire

ONE, MANY = "/api/v1/runs/math/grpo/reports", "/api/v1/reports"
BODY = wire.encode(report())
START = wire.encode(wire.Start(**ORIGIN, project="math", run="grpo"))
BUNDLE = wire.encode_bundle([START, BODY, b"\xc0", wire.encode(report(project="math", run="-x"))])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and its expected status; `token` names the sender's token."""

    status: int
    path: str = ONE
    content: Any = BODY
    media_type: str = wire.MSGPACK
    method: str = "POST"
    token: str = "sender"


CASES = {
    "a report": Case(status=200),
    "the same one as JSON, in chunks": Case(status=200, content=[as_json(report())], media_type=wire.JSON),
    "a content type with a parameter": Case(status=200, media_type=f"{wire.MSGPACK.upper()}; version=1"),
    "a bundle with messages that are refused": Case(status=200, path=MANY, content=BUNDLE),
    "a bundle with another project's token": Case(status=200, path=MANY, content=BUNDLE, token="stranger"),
    "an invalid report": Case(status=400, content=b"\xc0"),
    "an invalid bundle": Case(status=400, path=MANY),
    "a run of odd letters": Case(status=400, path="/api/v1/runs/math/%2e%2e/reports"),
    "a run with a slash": Case(status=404, path="/api/v1/runs/math/gr%2Fpo/reports"),
    "no content type": Case(status=415, media_type=""),
    "another content type": Case(status=415, path=MANY, media_type="text/plain"),
    "no token": Case(status=401, token="nobody"),
    "a read-only token": Case(status=403, token="reader"),
    "a bundle with a read-only token": Case(status=403, path=MANY, token="reader"),
    "a token of another project": Case(status=403, token="stranger"),
    "a GET request": Case(status=405, method="GET"),
    "a path with a trailing slash": Case(status=307, path=f"{MANY}/"),
}


@pytest.fixture(scope="module")
def tokens(shared_service: ThreadedService) -> dict[str, str]:
    with shared_service.client() as admin:
        admin.headers.update(bearer(make_token(admin, "root", Scope.ADMIN)))
        return {
            "sender": make_token(admin, "sender", Scope.INGEST, project="math"),
            "reader": make_token(admin, "reader", Scope.READ, project="math"),
            "stranger": make_token(admin, "stranger", Scope.INGEST, project="physics"),
        }


def send(shared_service: ThreadedService, tokens: dict[str, str], case: Case) -> httpx.Response:
    headers = {"Content-Type": case.media_type} if case.media_type else {}
    if case.token in tokens:
        headers["Authorization"] = f"Bearer {tokens[case.token]}"
    content = iter(case.content) if isinstance(case.content, list) else case.content
    with shared_service.client(follow_redirects=False) as client:
        return client.request(case.method, case.path, content=content, headers=headers)


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_answered_by_its_content_and_its_sender(
    shared_service: ThreadedService, tokens: dict[str, str], name: str
) -> None:
    answer = send(shared_service, tokens, CASES[name])
    assert answer.status_code == CASES[name].status, answer.text


def test_a_report_at_shutdown_is_to_be_sent_again(shared_service: ThreadedService, tokens: dict[str, str]) -> None:
    shared_service.app.state.components.store.writer.close()
    answer = send(shared_service, tokens, Case(status=503))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")

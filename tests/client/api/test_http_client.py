"""Requests of `Service` on the wire: retries, refusals, certificates and proxies, against real servers."""

from __future__ import annotations

import time

import pytest

from tests.client.server import CERTIFICATE, HANG_UP, Answer, Peer, ProxyServer, problem
from trmon_client.api import (
    AccessDenied,
    IncompatibleService,
    NotFoundError,
    RequestRefused,
    Service,
    ServiceBusy,
    ServiceUnreachable,
)
from trmon_client.api.http_client import HttpClient
from trmon_client.core import wire

BUNDLE = wire.encode_bundle([wire.encode(wire.Heartbeat(project="p", run="r", attempt="a", launch="l"))])


def post(url: str, *, token: str | None = None, max_tries: int = 3) -> str:
    """Send a heartbeat and return what became of it."""
    client = HttpClient(url, token=token, timeout_seconds=10.0)
    try:
        answer = client.request("POST", "/api/v1/reports", body=BUNDLE, media_type=wire.MSGPACK, max_tries=max_tries)
    finally:
        client.close()
    return wire.decode_acks(answer).acks[0].status


def test_a_busy_service_is_asked_again_when_it_says() -> None:
    with Peer([problem(429, "too many requests", **{"Retry-After": "1"})]) as peer:
        began = time.monotonic()
        assert post(peer.url, token="s3cret") == "stored"
        assert time.monotonic() - began > 0.9
        assert [request.headers["Authorization"] for request in peer.requests] == ["Bearer s3cret"] * 2


def test_a_proxy_that_names_a_time_is_asked_again() -> None:
    with Peer([Answer(503, {"Content-Type": "text/html", "Retry-After": "0"}, b"<h1>")]) as peer:
        assert post(peer.url) == "stored"


def test_a_service_that_stays_busy_says_for_how_long() -> None:
    with Peer(otherwise=problem(503, "it is starting", **{"Retry-After": "7"})) as peer:
        with pytest.raises(ServiceBusy, match="answered 503: it is starting") as told:
            post(peer.url, max_tries=1)
        assert (told.value.status, told.value.retry_after_seconds, len(peer.requests)) == (503, 7.0, 1)


REFUSALS = [
    pytest.param(problem(400, "step: too large"), RequestRefused, "answered 400: step: too large", id="invalid"),
    pytest.param(problem(404, "no run 'a'"), NotFoundError, "answered 404: no run 'a'", id="missing"),
    pytest.param(problem(401, "no token"), AccessDenied, "answered 401: no token; .* set TRMON_TOKEN", id="no token"),
    pytest.param(problem(403, "lacks the scope"), AccessDenied, "answered 403: lacks the scope$", id="scope"),
    pytest.param(problem(404, "no route '/x'"), IncompatibleService, "no route '/x'; correct the URL, or", id="older"),
    pytest.param(problem(405, "POST is not allowed"), IncompatibleService, "update the older of", id="method"),
    pytest.param(Answer(403, {"Content-Type": "text/html"}, b"<h1>"), IncompatibleService, "not from trmon", id="page"),
    pytest.param(Answer(502, {"Content-Type": "text/html"}, b"<h1>"), ServiceUnreachable, "the proxy in", id="proxy"),
    pytest.param(Answer(301, {"Location": "http://127.0.0.1:9"}, b""), IncompatibleService, "answered 301", id="moved"),
    pytest.param(
        Answer(400, {"Content-Type": "application/problem+json"}, b"{"),
        IncompatibleService,
        "not from trmon",
        id="torn",
    ),
    pytest.param(HANG_UP, ServiceUnreachable, "no service answers at", id="hangs up"),
]


@pytest.mark.parametrize(("answer", "kind", "said"), REFUSALS)
def test_a_refusal_says_what_to_do(answer: Answer, kind: type[Exception], said: str) -> None:
    with Peer(otherwise=answer) as peer:
        with pytest.raises(kind, match=said):
            post(peer.url)
        assert len(peer.requests) == 1, "a change must not be sent twice"


def test_another_program_at_the_url_is_told() -> None:
    page = Answer(200, {"Content-Type": "text/html"}, b"<h1>welcome</h1>")
    said = "does not answer like a service of this"
    with Peer([page]) as peer, Service(peer.url) as service, pytest.raises(IncompatibleService, match=said):
        service.run("math/grpo")


def test_a_proxy_leads_to_the_service_whose_certificate_must_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer(is_secure=True) as peer, ProxyServer(peer.port) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://me:p%40ss@{proxy.address}")
        with pytest.raises(ServiceUnreachable, match="certificate verify failed"):
            post("https://service.test:8642")
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert post("https://service.test:8642", token="s3cret") == "stored"
        assert len(proxy.heads) == 2
        assert post(f"https://127.0.0.1:{peer.port}") == "stored"
        assert len(proxy.heads) == 2
    with Peer() as peer, ProxyServer(peer.port) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://{proxy.address}")
        assert post("http://service.test:8642") == "stored"
        assert len(proxy.heads) == 1

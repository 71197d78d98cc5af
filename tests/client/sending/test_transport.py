"""One upload: what answers mean, and its connection: kept, reopened, over TLS, and through proxies."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import threading
from base64 import b64encode
from itertools import chain, repeat

import pytest

from tests.client.faults import hostile_server as hostile
from tests.client.faults.hostile_server import Behaviour, HostileServer
from tests.client.server import CERTIFICATE, Answer, Peer, ProxyServer, problem
from tests.fixtures.waiting import eventually
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.sending.transport import MAX_ANSWER_BYTES, HttpTransport, UploadOutcome, UploadResult

HEARTBEAT = wire.encode(wire.Heartbeat(attempt="a", launch="l"))
CREDENTIALS = b64encode(b"me:p@ss").decode()


def sent(url: str, *, times: int = 1, token: str | None = None, limits: Limits | None = None) -> UploadResult:
    """Return the result of the last of several uploads by one transport."""
    transport = HttpTransport(url, token=token, limits=limits or Limits())
    results = [transport.send([HEARTBEAT]) for _ in range(times)]
    transport.close()
    return results[-1]


def test_a_connection_that_the_service_closed_is_reopened_without_a_failure() -> None:
    body = wire.encode(wire.Acks([wire.Ack("stored")]))
    # Without "Connection: close": the client is not told.
    with HostileServer(hostile.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)) as server:
        transport = HttpTransport(server.url, token=None, limits=Limits())
        for n in (1, 2):
            assert transport.send([HEARTBEAT]).outcome is UploadOutcome.ANSWERED
            eventually(lambda: server.n_closed, n.__eq__)
        transport.close()


def test_requests_share_one_connection_also_after_an_error() -> None:
    with Peer([problem(503, "later"), Answer(204)]) as peer:
        assert sent(peer.url, times=4).outcome is UploadOutcome.ANSWERED
        assert (len(peer.requests), len({request.port for request in peer.requests})) == (4, 1)


def test_an_answer_that_comes_before_the_body_is_read_counts() -> None:
    """A service refuses a body that is too large by its length, and closes the connection."""

    def refuse(connection: socket.socket, _ends: threading.Event) -> None:
        connection.recv(1 << 10)
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    with HostileServer(refuse) as server:
        transport = HttpTransport(server.url, token=None, limits=Limits())
        result = transport.send([HEARTBEAT] * 200_000)
        transport.close()
    assert result.outcome is UploadOutcome.REFUSED
    assert result.detail.startswith("HTTP 413: ")


def test_a_url_with_the_path_of_a_page_or_https_is_told_with_what_to_correct() -> None:
    with Peer(otherwise=problem(404, "no route '/runs/api/v1/reports'")) as peer:
        for url in (f"{peer.url}/runs", peer.url.replace("http", "https")):
            detail = sent(url).detail
            assert ("correct url= (TRMON_URL)" if url.endswith("runs") else "the service speaks http") in detail


ANSWERS: dict[str, Answer] = {
    "internal error": Answer(500),
    "a page of something else": Answer(200, {"Content-Type": "text/html"}, b"<html>welcome to the hotel</html>"),
    "answers that do not match the messages": Answer(200, {"Content-Type": wire.MSGPACK}, wire.encode(wire.Acks([]))),
    "not found by something in between": Answer(404, {"Content-Type": "text/plain"}, b"no such ingress"),
    "not found by a service under another path": problem(404, "no route"),
}
BEHAVIOURS: dict[str, Behaviour] = {
    "a status that is none": hostile.answer(b"HTTP/1.1 abc OK\r\n\r\n"),
    "no HTTP": hostile.answer(b"\x00\xff\xfe\r\n\r\n"),
    "an endless header": hostile.answer(b"HTTP/1.1 200 " + b"x" * (1 << 20)),
    "a body cut short": hostile.answer(hostile.HEAD + b"\x81"),
    "a body that is no msgpack": hostile.status("200 OK", "Content-Type: application/msgpack", body=b"\xc1" * 64),
    "acknowledgements that are nested too deep": hostile.status("200 OK", body=b"\x91" * 100_000),
    "chunks that are none": hostile.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
}


@pytest.mark.parametrize("answered", [*ANSWERS.values(), *BEHAVIOURS.values()], ids=[*ANSWERS, *BEHAVIOURS])
def test_after_what_is_no_answer_of_the_service_a_bundle_is_sent_again(answered: Answer | Behaviour) -> None:
    with Peer(otherwise=answered) if isinstance(answered, Answer) else HostileServer(answered) as server:
        assert sent(server.url).outcome is UploadOutcome.AGAIN


@pytest.mark.parametrize("code", [302, 307])
def test_a_redirect_is_not_followed_and_no_other_host_sees_the_token(code: int) -> None:
    with Peer() as elsewhere, Peer(otherwise=Answer(code, {"Location": f"{elsewhere.url}/api/v1/reports"})) as peer:
        assert sent(peer.url, token="s3cret").outcome is UploadOutcome.AGAIN
        assert elsewhere.requests == []


SENT = "Wed, 21 Oct 2026 07:28:00 GMT"
RETRY_AFTER = [
    ({"Retry-After": "0.25"}, 0.25),
    ({"Retry-After": "-3"}, 0.0),
    ({"Retry-After": "nan"}, 0.0),
    ({"Retry-After": "1e9"}, 600.0),
    ({"Retry-After": "soon"}, 0.0),
    ({"Retry-After": SENT}, 0.0),
    ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": SENT}, 30.0),
]


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER, ids=str)
def test_retry_after_is_honoured_within_reason(headers: dict[str, str], seconds: float) -> None:
    with Peer(otherwise=problem(429, "busy", **headers)) as peer:
        result = sent(peer.url)
    assert (result.outcome, result.retry_after_seconds) == (UploadOutcome.AGAIN, seconds)
    assert result.detail == "HTTP 429: busy"


HEAD = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 10000000000\r\n\r\n"
ENDLESS = {
    "a body that is too long": (HEAD, b"x" * (1 << 20), 30.0, f"more than {MAX_ANSWER_BYTES} bytes"),
    "a body that drips": (HEAD, b"x", 0.2, "no complete answer"),
    "a head that drips": (b"HTTP/1.1 502 ", b"x", 0.2, "no complete answer"),
    "interim answers without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.2, "no complete answer"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("head", "part", "seconds", "detail"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_answer_is_abandoned(head: bytes, part: bytes, seconds: float, detail: str) -> None:
    with HostileServer(hostile.drip(chain([head], repeat(part)), seconds=0.01 / len(part))) as server:
        result = sent(server.url, limits=Limits(read_timeout_seconds=seconds))
    assert result.outcome is UploadOutcome.AGAIN
    assert detail in result.detail


def test_an_upload_imports_no_module() -> None:
    """A trainer that forks while the uploader's thread imports a module leaves the child unable to import it."""
    script = """
        import os, sys
        from tests.client.server import CERTIFICATE, Peer
        from trmon_client.config.settings import Limits
        from trmon_client.core import wire
        from trmon_client.sending.transport import HttpTransport

        os.environ["SSL_CERT_FILE"] = str(CERTIFICATE)
        for is_secure in (False, True):
            with Peer(is_secure=is_secure) as peer:
                transport = HttpTransport(peer.url, token="t", limits=Limits())
                before = set(sys.modules)
                result = transport.send([wire.encode(wire.Heartbeat(attempt="a", launch="l"))])
                print(result.outcome.value, sorted(set(sys.modules) - before))
                transport.close()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["answered []"] * 2


def test_a_certificate_must_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer(is_secure=True) as peer:
        refused = sent(peer.url)
        assert refused.outcome is UploadOutcome.AGAIN
        assert "CERTIFICATE_VERIFY_FAILED" in refused.detail
        assert peer.requests == [], "no token is sent"
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert sent(peer.url, times=2).outcome is UploadOutcome.ANSWERED
        assert len({request.port for request in peer.requests}) == 1


def test_a_certificate_must_name_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Peer(is_secure=True) as peer, ProxyServer(peer.port) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        assert sent("https://service.test").outcome is UploadOutcome.ANSWERED
        refused = sent("https://another.test")
        assert refused.outcome is UploadOutcome.AGAIN
        assert "another.test" in refused.detail
        assert len(peer.requests) == 1


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_proxy_forwards_requests_over_http(variable: str, is_secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Peer() as peer, ProxyServer(peer.port, is_secure=is_secure) as proxy:
        monkeypatch.setenv(variable, f"{'https' if is_secure else 'http'}://me:p%40ss@{proxy.address}")
        assert sent("http://service.test:8642", token="s3cret").outcome is UploadOutcome.ANSWERED
        (head,) = proxy.heads
        assert head.startswith(b"POST http://service.test:8642/api/v1/reports HTTP/1.1\r\n")
        assert peer.requests[0].headers["Host"] == "service.test:8642"
        assert peer.requests[0].headers["Proxy-Authorization"] == f"Basic {CREDENTIALS}"


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_proxy_tunnels_requests_over_tls_unread(is_secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Peer(is_secure=True) as peer, ProxyServer(peer.port, is_secure=is_secure) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"{'https' if is_secure else 'http'}://me:p%40ss@{proxy.address}")
        assert sent("https://service.test:8642/base", times=2, token="s3cret").outcome is UploadOutcome.ANSWERED
        (head,) = proxy.heads
        assert head.startswith(b"CONNECT service.test:8642 HTTP/1.")
        assert f"Proxy-Authorization: Basic {CREDENTIALS}".encode() in head
        assert b"s3cret" not in head
        assert peer.requests[0].path == "/base/api/v1/reports"
        assert "Proxy-Authorization" not in peer.requests[0].headers


@pytest.mark.parametrize("named", ["127.0.0.1", "localhost"])
def test_the_loopback_is_never_reached_through_a_proxy(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer() as peer, ProxyServer(peer.port) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://{proxy.address}")
        assert sent(f"http://{named}:{peer.port}").outcome is UploadOutcome.ANSWERED
        assert proxy.heads == []


@pytest.mark.parametrize("no_proxy", ["service.test", ".test", "fd00::/8,service.test", "service.test:8642", "*"])
def test_a_host_of_no_proxy_is_reached_directly(no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer() as peer, ProxyServer(peer.port) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://{proxy.address}")
        assert sent("http://service.test:8642").outcome is UploadOutcome.ANSWERED
        monkeypatch.setenv("NO_PROXY", no_proxy)
        # A name that exists nowhere.
        assert sent("http://service.test:8642").outcome is UploadOutcome.AGAIN
        assert len(proxy.heads) == 1

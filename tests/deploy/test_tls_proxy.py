"""The configurations of nginx and Caddy, run with a certificate before a real service."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.api.test_events import streaming, take_steps
from tests.client.server import CERTIFICATE
from tests.deploy.image import ROOT
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, step_report
from tests.fixtures.waiting import eventually
from trmon.config.settings import Settings
from trmon.domain.access import Scope
from trmon_client.core import wire

pytestmark = pytest.mark.slow

DEPLOY = ROOT / "deploy"
UPSTREAM = "127.0.0.1:8642"
MAX_BODY_BYTES: int = Settings.model_fields["max_body_bytes"].default


@dataclass(frozen=True)
class Proxied:
    """A service, and a proxy of it on another port of localhost; `tokens` holds the admin's once there is one."""

    service: ThreadedService
    port: int
    tokens: list[str] = field(default_factory=list)

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """Return a client that trusts the proxy's certificate."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        url = f"https://localhost:{self.port}"
        return httpx.Client(base_url=url, verify=trusted, headers=headers, timeout=30.0, trust_env=False)

    def token(self) -> str:
        """Return the admin token, which is created without the proxy."""
        if not self.tokens:
            with self.service.client() as direct:
                self.tokens.append(make_token(direct, "admin", Scope.ADMIN))
        return self.tokens[0]


def changed(text: str, by: dict[str, str]) -> str:
    """Replace each text, which must be there."""
    for old, new in by.items():
        assert old in text, f"{old!r} is not in the configuration"
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    """Return the command that runs nginx with our server in a minimal nginx.conf."""
    server = changed(
        (DEPLOY / "nginx" / "trmon.conf").read_text(),
        {
            UPSTREAM: upstream,
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            "trmon.example": "localhost",
            **dict.fromkeys(("/etc/trmon/tls.crt", "/etc/trmon/tls.key"), str(CERTIFICATE)),
        },
    )
    (folder / "trmon.conf").write_text(server)
    temporary = "".join(
        f"  {kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off;\nmaster_process off;\npid {folder / 'nginx.pid'};\nevents {{}}\n"
        f"http {{\n  access_log off;\n{temporary}  include {folder / 'trmon.conf'};\n}}\n"
    )
    return ["nginx", "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(main)]


def caddy(folder: Path, port: int, upstream: str) -> list[str]:
    """Return the command that runs Caddy with our Caddyfile, on another port and with our certificate."""
    text = changed(
        (DEPLOY / "caddy" / "Caddyfile").read_text(),
        {
            UPSTREAM: upstream,
            "trmon.example {": f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls {CERTIFICATE} {CERTIFICATE}",
            "admin off": "admin off\n\tauto_https disable_redirects",
        },
    )
    file = folder / "Caddyfile"
    file.write_text(text)
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


PROXIES = [
    pytest.param(nginx, id="nginx", marks=pytest.mark.server("nginx")),
    pytest.param(caddy, id="caddy", marks=pytest.mark.server("caddy")),
]


@pytest.fixture(scope="module", params=PROXIES)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A service without tokens until a test needs one, which takes larger bodies than by default, behind a proxy."""
    command_of: Callable[[Path, int, str], list[str]] = request.param
    tmp_path = tmp_path_factory.mktemp("proxied")
    # The service takes more than the proxy may, so that a refusal is the proxy's.
    service = ThreadedService(tmp_path / "data", max_body_bytes=2 * MAX_BODY_BYTES)
    port = free_port()
    command = command_of(tmp_path, port, service.url.removeprefix("http://"))
    try:
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "HOME": str(tmp_path)})
        try:
            found = Proxied(service, port)
            eventually(lambda: _is_up(found, process, tmp_path / "log"), timeout_seconds=60.0)
            yield found
        finally:
            process.kill()
            process.wait(30.0)
    finally:
        service.stop()


@pytest.mark.parametrize("proxied", PROXIES[:1], indirect=True)
def test_browsers_are_told_to_use_tls_only(proxied: Proxied) -> None:
    with proxied.client() as client:
        for answer in (client.get("/"), client.get("/no/such/page"), client.post("/", content=b"x")):
            assert answer.headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]


def _is_up(proxied: Proxied, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with suppress(httpx.TransportError), proxied.client() as client:
        return client.get("/healthz").status_code == 200
    return False


def test_before_the_first_token_the_page_is_served_and_nobody_passes_for_the_machine_itself(proxied: Proxied) -> None:
    with proxied.service.client() as direct, proxied.client() as client:
        assert direct.get("/api/v1/runs").status_code == 200, "a token was created before"
        assert client.get("/api/v1/runs").status_code == 401
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert client.get("/metrics").status_code == 401
        for name in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            for value in ("127.0.0.1", ""):
                assert client.get("/api/v1/runs", headers={name: value}).status_code == 401, (name, value)
    with proxied.client(proxied.token()) as admin:
        assert admin.get("/api/v1/runs").status_code == 200


def test_events_arrive_one_by_one_and_a_large_report_is_stored(proxied: Proxied) -> None:
    with proxied.client(proxied.token()) as client, proxied.client(client.headers["Authorization"][7:]) as trainer:
        send(trainer, MATH, wire.Start(**ORIGIN, owner="me"))
        with streaming(client) as events:
            send_step(trainer, MATH, step=0)
            for step in range(1, 4):
                send_step(trainer, MATH, step=step)
                [event] = take_steps(events, 1)
                assert event.data["step"] == step - 1
        report = step_report(4, content=columns(20_000))
        assert 2 << 20 < len(wire.encode(report)) < MAX_BODY_BYTES
        send(trainer, MATH, report)


def test_a_body_above_the_limit_is_refused_by_its_length(proxied: Proxied) -> None:
    connection = begun_report(proxied)
    connection.putheader("Content-Length", str(MAX_BODY_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_without_a_length_is_refused_once_it_exceeds_the_limit(proxied: Proxied) -> None:
    connection = begun_report(proxied)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    with suppress(ConnectionError, ssl.SSLError):  # the proxy may close while the rest is sent
        for _ in range((MAX_BODY_BYTES >> 20) + 1):
            connection.send(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        connection.send(b"0\r\n\r\n")
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_of_the_limit_reaches_the_service(proxied: Proxied) -> None:
    with proxied.client(proxied.token()) as trainer:
        answer = trainer.post("/api/v1/reports", content=bytes(MAX_BODY_BYTES), headers={"Content-Type": wire.MSGPACK})
        assert answer.status_code == 413
        # The service's own refusal, of 64 million numbers: a proxy has none as a problem.
        assert answer.headers["content-type"] == "application/problem+json"
        assert "values" in answer.json()["detail"]


def begun_report(proxied: Proxied) -> http.client.HTTPSConnection:
    """Return a connection with a request for a report, to which headers of its body can be added."""
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    connection = http.client.HTTPSConnection("localhost", proxied.port, timeout=30.0, context=trusted)
    connection.putrequest("POST", "/api/v1/reports")
    connection.putheader("Authorization", f"Bearer {proxied.token()}")
    connection.putheader("Content-Type", wire.MSGPACK)
    return connection


def test_headers_that_are_too_large_are_refused(proxied: Proxied) -> None:
    with proxied.client(proxied.token()) as client:
        assert client.get("/api/v1/runs", headers={"X-Padding": "x" * 8_000}).status_code == 200
        assert client.get("/api/v1/runs", headers={"X-Padding": "x" * 100_000}).status_code in (400, 431)

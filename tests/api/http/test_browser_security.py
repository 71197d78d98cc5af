"""Browser security: accepted hosts, cross-site requests and response headers."""

from __future__ import annotations

import gzip
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.service import ThreadedService
from trmon.api.http.auth import HEADERS
from trmon.domain.access import Scope
from trmon.web.routes import FOLDER

TOKEN = {"name": "x", "scopes": ["read"]}


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/api/v1/runs", "/metrics", "/healthz", "/nothing", "/api/v1/runs/no/run"]
)
def test_every_response_has_the_security_headers(shared: httpx.Client, path: str) -> None:
    answer = shared.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "server" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8642", ""])
def test_a_foreign_host_is_refused(shared: httpx.Client, host: str) -> None:
    answer = shared.get("/api/v1/runs", headers={"Host": host})
    assert answer.status_code == 403
    assert "TRMON_ALLOW_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]", "[::1]:8642"])
def test_loopback_names_are_accepted_hosts(shared: httpx.Client, host: str) -> None:
    assert shared.get("/api/v1/runs", headers={"Host": host}).status_code == 200


def test_hosts_can_be_added(serve: Serve) -> None:
    service = serve()
    with service.client() as client:
        make_token(client, "root", Scope.ADMIN)
    service.restart(allow_hosts="Trmon.Example,other.example")
    with service.client() as client:
        assert client.get("/healthz", headers={"Host": "TRMON.example:443"}).status_code == 200
        assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_another_sites_page_may_not_write(shared: httpx.Client, headers: dict[str, str]) -> None:
    assert shared.post("/api/v1/tokens", json=TOKEN, headers=headers).status_code == 403
    assert shared.get("/api/v1/tokens").json() == []


@pytest.mark.parametrize("host", ["", "LOCALHOST:8642"])
def test_our_own_page_may_write(client: httpx.Client, host: str) -> None:
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": str(client.base_url).rstrip("/")}
    if host:
        headers = {"Host": host, "Origin": f"http://{host.lower()}"}
    assert client.post("/api/v1/tokens", json=TOKEN, headers=headers).status_code == 201


def test_no_other_site_may_read(shared: httpx.Client) -> None:
    answer = shared.get("/api/v1/runs", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_page_is_served_at_its_paths_without_inline_scripts(shared: httpx.Client) -> None:
    for path in ("/", "/alerts", "/compare", "/runs/math/grpo", "/rules/any"):
        page = shared.get(path).text
        assert f'src="{FOLDER}/app.js"' in page
        assert "<script>" not in page
        assert "http" not in page.replace("http-equiv", "")
    assert shared.get(f"{FOLDER}/app.js").headers["content-type"].startswith("text/javascript")
    assert shared.get(f"{FOLDER}/..%2Fsettings.py").status_code == 404


def test_a_file_of_the_page_is_kept_for_good_and_the_page_is_not(shared: httpx.Client) -> None:
    page, file, other = (shared.get(path) for path in ("/", f"{FOLDER}/app.js", "/assets/other-version/app.js"))
    kept = [answer.headers["cache-control"] for answer in (page, file, other)]
    assert kept == ["no-cache", "public, max-age=31536000, immutable", "no-cache"]
    assert other.content == file.content


def test_an_unchanged_page_is_not_sent_again(shared: httpx.Client) -> None:
    first = shared.get("/")
    again = shared.get("/", headers={"If-None-Match": first.headers["etag"]})
    other = shared.get("/", headers={"If-None-Match": '"of-an-older-version"'})
    assert (first.status_code, again.status_code, again.content, other.status_code) == (200, 304, b"", 200)


def test_reads_are_compressed_and_acknowledgements_are_not(shared: httpx.Client) -> None:
    assert shared.get("/api/v1/signals").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in shared.get("/api/v1/signals", headers={"Accept-Encoding": "identity"}).headers
    assert "content-encoding" not in shared.get("/api/v1/runs").headers
    many = [{"project": "math", "run": f"r{i}", "attempt": "a", "launch": "l", "type": "nothing"} for i in range(200)]
    refused = shared.post("/api/v1/reports", json=many)
    assert len(refused.content) > 0
    assert "content-encoding" not in refused.headers


def test_garbage_on_a_connection_does_not_affect_others(shared_service: ThreadedService, shared: httpx.Client) -> None:
    address = urlsplit(shared_service.url)
    with socket.create_connection((address.hostname, address.port), timeout=5) as line:
        line.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b"400" in line.recv(1024)
    assert shared.get("/healthz").status_code == 200


def test_files_of_the_page_come_compressed_to_those_who_accept_it(shared: httpx.Client) -> None:
    with shared.stream("GET", f"{FOLDER}/app.js", headers={"Accept-Encoding": "gzip"}) as compressed:
        raw = b"".join(compressed.iter_raw())
    plain = shared.get(f"{FOLDER}/app.js", headers={"Accept-Encoding": "identity"})
    assert (compressed.headers["content-encoding"], compressed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(raw) == plain.content
    assert int(compressed.headers["content-length"]) == len(raw) < len(gzip.compress(plain.content, 4))

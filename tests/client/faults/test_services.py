"""The tiny trainer under services that are away, slow, broken or hostile, with the client's default limits."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.faults import hostile_server as hostile
from tests.client.faults.hostile_server import Behaviour, HostileServer
from tests.client.faults.tiny_trainer import N_UPDATES, STEPS, train
from tests.client.server import Peer
from tests.client.trainer import settings, spooled, steps
from tests.fixtures.ports import free_port
from tests.fixtures.waiting import eventually
from trmon_client.config.settings import ClientSettings, Limits
from trmon_client.monitor import Monitor

EXIT_SECONDS = 8.0
"""Far above the default of 2 s and below the client's other time limits: no result depends on a busy machine."""

ALL_STEPS = [step for step in range(STEPS) for _ in range(N_UPDATES)]
PROBLEM = "Content-Type: application/problem+json"

BEHAVIOURS: dict[str, Behaviour] = {
    "accepts and hangs up": hostile.hang_up,
    "500": hostile.status("500 Internal Server Error"),
    "429 with Retry-After": hostile.status("429 Busy", "Retry-After: 3600", PROBLEM, body=b'{"title":"busy"}'),
    "a status that is none": hostile.answer(b"HTTP/1.1 abc OK\r\n\r\n"),
    "no HTTP": hostile.answer(b"\x00\xff\xfe\r\n\r\n"),
    "an endless header": hostile.answer(b"HTTP/1.1 200 " + b"x" * (1 << 20)),
    "a body cut short": hostile.answer(hostile.HEAD + b"\x81"),
    "a body that is no msgpack": hostile.status("200 OK", "Content-Type: application/msgpack", body=b"\xc1" * 64),
    "acknowledgements that are nested too deep": hostile.status("200 OK", body=b"\x91" * 100_000),
    "chunks that are none": hostile.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
}  # fmt: skip
HANGING: dict[str, Behaviour] = {
    "accepts and never answers": hostile.never_answer,
    "accepts and never reads": hostile.never_read,
    "answers one byte a second": hostile.one_byte_a_second(),
}


def with_defaults(tmp_path: Path, url: str, **given: str) -> ClientSettings:
    """Return settings with the client's own limits."""
    return replace(settings(tmp_path, url=url, **given), limits=Limits())


def train_untouched(tmp_path: Path, untouched: str, url: str, **given: str) -> None:
    """Train against a service that fails: training and its end are as without it, and every report is kept."""
    with Monitor(with_defaults(tmp_path, url, **given)) as monitor:
        assert train(monitor) == untouched
        ends_at = time.monotonic()
    assert time.monotonic() - ends_at < EXIT_SECONDS
    # After a hanging upload, the last half second is for the spool: on a stalled disk it is written later.
    eventually(lambda: steps(spooled(tmp_path)), ALL_STEPS.__eq__)


@pytest.mark.parametrize(
    "behave",
    [
        *(pytest.param(behave, id=name) for name, behave in BEHAVIOURS.items()),
        *(pytest.param(behave, id=name, marks=pytest.mark.slow) for name, behave in HANGING.items()),
    ],
)
def test_training_is_untouched_and_every_report_kept(tmp_path: Path, untouched: str, behave: Behaviour) -> None:
    with HostileServer(behave) as server:
        train_untouched(tmp_path, untouched, server.url)
        assert server.n_connections


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:{port}", id="absent"),
        # A resolver may take its time.
        pytest.param("http://service.invalid:8642", marks=pytest.mark.slow, id="a name that does not resolve"),
    ],
)
def test_a_service_that_is_not_there_costs_nothing_but_the_spool(tmp_path: Path, untouched: str, url: str) -> None:
    train_untouched(tmp_path, untouched, url.format(port=free_port()))


def test_a_certificate_that_is_not_trusted_gets_no_token(
    tmp_path: Path, untouched: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Peer(is_secure=True) as peer:
        train_untouched(tmp_path, untouched, peer.url, token="s3cret")
        assert peer.requests == []
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err


def test_a_tls_handshake_that_fails_costs_nothing_but_the_spool(tmp_path: Path, untouched: str) -> None:
    with HostileServer(lambda connection, _ends: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        train_untouched(tmp_path, untouched, server.url.replace("http:", "https:"))


@pytest.mark.parametrize("code", [302, 307])
def test_a_redirect_is_not_followed_and_no_other_host_sees_the_token(tmp_path: Path, untouched: str, code: int) -> None:
    with Peer() as elsewhere:
        with HostileServer(hostile.status(f"{code} Moved", f"Location: {elsewhere.url}/api/v1/reports")) as server:
            train_untouched(tmp_path, untouched, server.url, token="s3cret")
            assert server.n_connections
        assert elsewhere.requests == []

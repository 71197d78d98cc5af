"""Connections over real sockets: large headers, clients that stop within a request, responses in one packet."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.fixtures.command import run_python
from tests.fixtures.loops import run
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from trmon.api.http.connections import MAX_HEAD_BYTES, CoalescingTransport, LimitedProtocol

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /api/v1/tokens HTTP/1.1\r\nhost: localhost\r\n"
STREAM = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
READY = b'{"status":"ok"}'
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\n"
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\n"

Connect = Callable[[ThreadedService], socket.socket]


class HastyProtocol(LimitedProtocol):
    """The limits of a real service, sooner."""

    max_wait_seconds = 0.3
    min_body_bytes = 1000


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that opens connections, which close with the test."""
    lines: list[socket.socket] = []

    def open_line(service: ThreadedService) -> socket.socket:
        url = httpx.URL(service.url)
        lines.append(socket.create_connection((url.host, url.port or 0), timeout=20))
        return lines[-1]

    yield open_line
    for line in lines:
        line.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedService]:
    """A service with short limits, for all tests."""
    service = ThreadedService(tmp_path_factory.mktemp("hasty"), protocol=HastyProtocol)
    yield service
    service.stop()


def all_of(line: socket.socket) -> bytes:
    """Return everything until the service closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := line.recv(1 << 16):
            received += piece
    return received


def received_within(line: socket.socket, *, seconds: float) -> tuple[bytes, bool]:
    """Return what arrives until nothing does for some seconds, and whether the connection is still open."""
    line.settimeout(seconds)
    received = b""
    try:
        while piece := line.recv(1 << 16):
            received += piece
    except TimeoutError:
        return received, True
    return received, False


def received_until(line: socket.socket, end: bytes, *, n: int = 1) -> bytes:
    """Return what arrives up to n times a text, and leave the connection open."""
    received = b""
    while received.count(end) < n:
        piece = line.recv(1 << 16)
        assert piece, received
        received += piece
    return received


def header(n_bytes: int) -> bytes:
    """Return a header line of a length."""
    return b"x: ".ljust(n_bytes - 2, b"x") + b"\r\n"


def test_headers_up_to_the_limit_are_accepted(shared_service: ThreadedService, connect: Connect) -> None:
    line = connect(shared_service)
    for _ in range(2):
        line.sendall(GET + header(MAX_HEAD_BYTES - len(GET) - 2) + b"\r\n")
        assert received_until(line, READY).startswith(OK)


def send_first(line: socket.socket, before: bytes) -> None:
    """Send a request, if there is one, and expect its response."""
    if before:
        line.sendall(before)
        assert received_until(line, READY).startswith(OK)


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET + header(MAX_HEAD_BYTES),
        GET + header(MAX_HEAD_BYTES) + b"\r\n",
        GET + header(1000) * (MAX_HEAD_BYTES // 1000 + 1) + b"\r\n",
        b"GET /".ljust(MAX_HEAD_BYTES + 1, b"x"),
        b"GET /".ljust(MAX_HEAD_BYTES + 1, b"x") + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=["unfinished header", "one header", "many headers", "unfinished request line", "request line"],
)
@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
def test_larger_headers_are_refused(
    shared_service: ThreadedService, connect: Connect, before: bytes, request_bytes: bytes
) -> None:
    line = connect(shared_service)
    send_first(line, before)
    line.sendall(request_bytes)
    head, _, body = all_of(line).partition(b"\r\n\r\n")
    assert head.startswith(TOO_LARGE)
    assert b"application/problem+json" in head
    assert b"content-security-policy" in head.lower()
    assert f"at most {MAX_HEAD_BYTES} bytes".encode() in body


def test_a_header_of_many_megabytes_is_cut_off(shared_service: ThreadedService, connect: Connect) -> None:
    line = connect(shared_service)
    line.sendall(GET + b"x: ")
    with pytest.raises(OSError, match=r"reset|pipe"):
        line.sendall(b"x" * (60 << 20))
    with shared_service.client() as client:
        assert client.get("/healthz").status_code == 200


def test_large_headers_do_not_appear_within_the_answer_before_them(
    shared_service: ThreadedService, connect: Connect
) -> None:
    line = connect(shared_service)
    line.sendall(STREAM)
    received_until(line, b"retry: ")
    line.sendall(GET + header(2 * MAX_HEAD_BYTES))
    assert TOO_LARGE not in all_of(line)


def test_pipelined_requests_longer_than_the_limit_in_all_are_answered(
    shared_service: ThreadedService, connect: Connect
) -> None:
    line = connect(shared_service)
    n_requests = 5
    line.sendall((GET + header(MAX_HEAD_BYTES // 2) + b"\r\n") * n_requests)
    received_until(line, OK, n=n_requests)


@pytest.mark.parametrize(
    "after",
    [b"0\r\n" + header(2 * MAX_HEAD_BYTES), b"2;" + b"x" * 2 * MAX_HEAD_BYTES, b"0\r\n" + header(1000) * 140],
    ids=["trailer", "chunk extension", "many trailers"],
)
def test_large_trailers_and_chunk_extensions_are_refused(
    shared_service: ThreadedService, connect: Connect, after: bytes
) -> None:
    line = connect(shared_service)
    line.sendall(POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n" + after)
    assert all_of(line).startswith(TOO_LARGE)


def test_trailers_are_not_headers(service: ThreadedService, connect: Connect, admin: httpx.Client) -> None:
    line = connect(service)
    trailer = b"authorization: " + admin.headers["authorization"].encode() + b"\r\n"
    line.sendall(POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + trailer + b"\r\n")
    assert all_of(line).startswith(b"HTTP/1.1 401 ")


def test_a_large_body_is_no_header(shared_service: ThreadedService, connect: Connect) -> None:
    line = connect(shared_service)
    body = b"x" * (8 * MAX_HEAD_BYTES)
    line.sendall(POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert all_of(line).startswith(b"HTTP/1.1 400 ")


def test_a_chunked_body_of_small_chunks_is_accepted(shared_service: ThreadedService, connect: Connect) -> None:
    line = connect(shared_service)
    chunks = b"1;abcdefgh\r\n \r\n" * MAX_HEAD_BYTES
    line.sendall(POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert all_of(line).startswith(b"HTTP/1.1 400 ")


def test_a_connection_without_a_request_is_closed(hasty: ThreadedService, connect: Connect) -> None:
    assert all_of(connect(hasty)) == b""


@pytest.mark.parametrize("half", [b"G", b"\r\n", GET, GET + b"x: "], ids=["method", "newline", "headers", "header"])
@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "second"])
def test_headers_that_do_not_end_are_refused(
    hasty: ThreadedService, connect: Connect, before: bytes, half: bytes
) -> None:
    line = connect(hasty)
    send_first(line, before)
    line.sendall(half)
    assert all_of(line).startswith(TIMEOUT)


def test_headers_that_arrive_slowly_are_refused(hasty: ThreadedService, connect: Connect) -> None:
    line = connect(hasty)
    line.settimeout(0.02)
    received = b""
    for letter in (GET + header(1000)).decode():
        try:
            line.sendall(letter.encode())
            received = line.recv(1 << 16)
        except TimeoutError:
            continue
        break
    assert received.startswith(TIMEOUT)


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"content-length: 9\r\n\r\n",
        POST + b"content-length: 9\r\n\r\n{",
        POST + b"transfer-encoding: chunked\r\n\r\n9\r\n{",
        POST + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx: ",
    ],
    ids=["nothing", "a part", "a part of a chunk", "a part of a trailer"],
)
def test_a_body_that_stops_is_refused(hasty: ThreadedService, connect: Connect, sent: bytes) -> None:
    line = connect(hasty)
    line.sendall(sent)
    head, _, body = all_of(line).partition(b"\r\n\r\n")
    assert head.startswith(TIMEOUT)
    assert b"a body must bring 1000 bytes in each 0.3 seconds" in body


class PatientProtocol(HastyProtocol):
    """Limits that a client on a busy machine keeps."""

    max_wait_seconds = 2.0


def test_a_body_that_keeps_the_minimum_rate_may_take_long(serve: Serve, connect: Connect) -> None:
    line = connect(serve(protocol=PatientProtocol))
    n_pieces = 6
    line.sendall(POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % (1000 * n_pieces))
    for _ in range(n_pieces):
        line.sendall(b" " * 1000)
        time.sleep(0.4)
    assert all_of(line).startswith(b"HTTP/1.1 400 ")


def test_a_body_that_stops_after_an_early_answer_ends_the_connection_without_a_second(
    hasty: ThreadedService, connect: Connect
) -> None:
    line = connect(hasty)
    line.sendall(b"POST /api/v1/reports HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 9\r\n\r\n{")
    received = all_of(line)
    assert received.startswith(b"HTTP/1.1 403 ")
    assert received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("after", [b"", GET], ids=["alone", "before a part of the next request"])
def test_an_event_stream_lasts_longer_than_the_limits(hasty: ThreadedService, connect: Connect, after: bytes) -> None:
    """A second request, of which a part has come, waits until the first is answered."""
    line = connect(hasty)
    line.sendall(STREAM + after)
    received, is_open = received_within(line, seconds=5 * HastyProtocol.max_wait_seconds)
    assert is_open
    assert b"retry: " in received
    assert TIMEOUT not in received


@pytest.mark.slow
def test_the_limits_of_a_real_service(service: ThreadedService, connect: Connect) -> None:
    lines = [connect(service) for _ in range(3)]
    lines[1].sendall(GET)
    lines[2].sendall(POST + b"content-length: 100000\r\n\r\n" + b" " * 1000)
    began = time.monotonic()
    assert all_of(lines[0]) == b""
    assert all_of(lines[1]).startswith(TIMEOUT)
    assert all_of(lines[2]).startswith(TIMEOUT)
    assert time.monotonic() - began < 60


MOST = 16


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[ThreadedService]:
    """A service for few connections."""
    service = ThreadedService(tmp_path, max_connections=MOST)
    yield service
    service.stop()


@pytest.mark.parametrize("head", [GET + b"x: ", POST + b"content-length: 100000\r\n\r\n["], ids=["headers", "bodies"])
def test_slow_clients_make_room_for_each_other_and_not_one_is_in_the_way_of_another(
    crowded: ThreadedService, connect: Connect, head: bytes
) -> None:
    slow = [connect(crowded) for _ in range(MOST)]
    for line in slow:
        line.sendall(head)
    for _ in range(2 * MOST):
        line = connect(crowded)
        line.sendall(GET + b"\r\n")
        assert received_until(line, READY).startswith(OK)
    assert all_of(slow[0]).startswith(TOO_MANY)


def test_a_body_that_brings_more_is_not_closed_for_those_that_bring_nothing(
    crowded: ThreadedService, connect: Connect
) -> None:
    body = b'{"name": "ana", "scopes": ["read"]}'
    uploading = connect(crowded)
    uploading.sendall(POST + b"content-type: application/json\r\ncontent-length: 32803\r\n\r\n")
    pieces = [body + b" " * (8192 - len(body)), *[b" " * 8192] * 3, b" " * 35]
    for piece in pieces:
        uploading.sendall(piece)
        for line in [connect(crowded) for _ in range(MOST // 2)]:
            line.sendall(GET)
            received_within(line, seconds=0.01)
    received, _ = received_within(uploading, seconds=5)
    assert received.startswith(b"HTTP/1.1 201 Created\r\n"), received


def test_the_process_gets_the_descriptors_that_its_connections_need() -> None:
    code = """if True:
        import resource
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        from trmon.api.http.connections import OpenConnections
        OpenConnections()
        print(min(hard, 4096 + 256) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0])"""
    done = run_python(code)
    assert done.stdout == "True\n", done.stderr


class Wire(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[object] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def test_writes_of_one_turn_are_sent_together() -> None:
    async def write() -> None:
        wire = Wire()
        transport = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        transport.write(b"head ")
        transport.write(b"body")
        assert wire.done == []
        await asyncio.sleep(0)
        assert wire.done == [b"head body"]
        transport.write(b"more")
        transport.flush()
        await asyncio.sleep(0)
        assert wire.done == [b"head body", b"more"]

    run(write())


def test_buffered_data_is_sent_before_the_connection_closes() -> None:
    async def end() -> None:
        wire = Wire()
        transport = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        transport.write(b"last")
        transport.close()
        assert wire.done == [b"last", "closed"]
        assert transport.is_closing()

    run(end())


def test_a_closed_connection_gets_no_more_data() -> None:
    async def go() -> None:
        wire = Wire()
        transport = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        transport.write(b"late")
        wire.close()
        await asyncio.sleep(0)
        assert wire.done == ["closed"]

    run(go())


def test_a_response_is_one_packet_and_the_connection_stays_open(
    shared_service: ThreadedService, connect: Connect
) -> None:
    line = connect(shared_service)
    for _ in range(3):
        line.sendall(GET + b"\r\n")
        answer = line.recv(1 << 16)
        assert answer.startswith(OK)
        assert answer.endswith(b'\r\n\r\n{"status":"ok"}')


def test_an_endless_response_is_sent_without_delay(shared_service: ThreadedService, connect: Connect) -> None:
    line = connect(shared_service)
    line.sendall(STREAM)
    head, _, body = received_until(line, b"retry: ").partition(b"\r\n\r\n")
    assert head.startswith(OK)
    assert b"transfer-encoding: chunked" in head
    assert body.endswith(b"\n\n\r\n")

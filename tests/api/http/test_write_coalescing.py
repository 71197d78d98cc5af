"""Write coalescing: a response is one packet, and nothing is delayed for more than a turn of the loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.loops import run
from tests.fixtures.service import ThreadedService
from trmon.api.http.connections import CoalescingTransport


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


@pytest.fixture
def line(shared_service: ThreadedService) -> Iterator[socket.socket]:
    """A connection to a service."""
    url = httpx.URL(shared_service.url)
    with socket.create_connection((url.host, url.port or 0), timeout=20) as line:
        yield line


def test_a_response_is_one_packet_and_the_connection_stays_open(line: socket.socket) -> None:
    for _ in range(3):
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = line.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b'\r\n\r\n{"status":"ok"}')


def test_an_endless_response_is_sent_without_delay(line: socket.socket) -> None:
    line.sendall(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = b""
    while b"retry: " not in answer:
        answer += line.recv(1 << 16)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body.endswith(b"\n\n\r\n")

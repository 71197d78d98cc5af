"""What leaves together: an answer in one packet, and nothing kept back for longer than a turn of the loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.loops import run
from tests.fixtures.service import ThreadedService
from trmon.api.http.write_coalescing import CoalescingTransport


class Wire(asyncio.Transport):
    """A transport that remembers what was done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[object] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.done.append(bytes(data))

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def test_what_is_written_in_one_turn_leaves_at_once() -> None:
    async def write() -> None:
        wire = Wire()
        cork = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        cork.write(b"head ")
        cork.write(b"body")
        assert wire.done == []
        await asyncio.sleep(0)
        assert wire.done == [b"head body"]
        cork.write(b"more")
        cork.flush()
        await asyncio.sleep(0)
        assert wire.done == [b"head body", b"more"]

    run(write())


def test_what_waits_is_sent_before_the_end() -> None:
    async def end() -> None:
        wire = Wire()
        cork = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        cork.write(b"last")
        cork.close()
        assert wire.done == [b"last", "closed"]
        assert cork.is_closing()

    run(end())


def test_who_has_gone_is_sent_nothing_more() -> None:
    async def go() -> None:
        wire = Wire()
        cork = CoalescingTransport(wire, loop=asyncio.get_running_loop())
        cork.write(b"late")
        wire.close()
        await asyncio.sleep(0)
        assert wire.done == ["closed"]

    run(go())


@pytest.fixture
def line(service: ThreadedService) -> Iterator[socket.socket]:
    """A connection to a service."""
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port or 0), timeout=20) as line:
        yield line


def test_an_answer_comes_in_one_packet_and_the_connection_is_kept(line: socket.socket) -> None:
    for _ in range(3):
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = line.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b'\r\n\r\n{"status":"ok"}')


def test_what_has_no_end_is_not_waited_for(line: socket.socket) -> None:
    line.sendall(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = b""
    while b"retry: " not in answer:
        answer += line.recv(1 << 16)
    head, _, begun = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked" in head
    assert begun.endswith(b"\n\n\r\n")

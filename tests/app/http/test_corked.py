"""What leaves together: an answer in one packet, and nothing kept back for longer than a turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import uvicorn
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.fixtures.loops import run
from trmon.app.http.corked import Cork, CorkedProtocol


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
        cork = Cork(wire, loop=asyncio.get_running_loop())
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
        cork = Cork(wire, loop=asyncio.get_running_loop())
        cork.write(b"last")
        cork.close()
        assert wire.done == [b"last", "closed"]
        assert cork.is_closing()

    run(end())


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    answer = StreamingResponse(_unending()) if scope["path"] == "/stream" else PlainTextResponse("all of it")
    await answer(scope, receive, send)


async def _unending() -> AsyncIterator[bytes]:
    yield b"begun"
    await asyncio.Event().wait()


def _served(ask: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Serve an app with the protocol for as long as one connection asks."""

    async def serve() -> None:
        config = uvicorn.Config(_app, port=0, http=CorkedProtocol, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname()[:2])
        async with asyncio.timeout(20):
            await ask(reader, writer)
        writer.close()
        server.should_exit = True
        await running

    run(serve())


def test_an_answer_comes_in_one_packet_and_the_connection_is_kept() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
            answer = await reader.read(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"\r\n\r\nall of it")

    _served(ask)


def test_what_has_no_end_is_not_waited_for() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert await reader.readuntil(b"begun") == b"5\r\nbegun"

    _served(ask)

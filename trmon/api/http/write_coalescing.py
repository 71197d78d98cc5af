"""Corked connections: an answer's head and its body leave in one packet, since each costs the kernel and its reader."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CoalescingProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, whose answers wait until they are whole or, if they are not by then, the loop's next turn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to speak, through a cork."""
        self._cork = CoalescingTransport(cast(asyncio.Transport, transport), loop=self.loop)
        super().connection_made(cast(asyncio.Transport, self._cork))

    def on_response_complete(self) -> None:
        """Send a whole answer."""
        self._cork.flush()
        super().on_response_complete()


class CoalescingTransport:
    """A transport that keeps what is written until it is told to send it, for a turn of the loop at most."""

    def __init__(self, transport: asyncio.Transport, *, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send data soon."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Send what waits, if anybody is still there."""
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def close(self) -> None:
        """Close the connection once what waits is sent."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

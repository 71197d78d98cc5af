"""Sends a response's head and body in one packet, because each packet costs both kernels."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class CoalescingProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which sends a response when it is complete, or at the loop's next turn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wrap the transport."""
        self._coalescing = CoalescingTransport(cast(asyncio.Transport, transport), loop=self.loop)
        super().connection_made(cast(asyncio.Transport, self._coalescing))

    def on_response_complete(self) -> None:
        """Send the complete response."""
        self._coalescing.flush()
        super().on_response_complete()


class CoalescingTransport:
    """A transport that buffers writes until `flush`, for at most one turn of the loop."""

    def __init__(self, transport: asyncio.Transport, *, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Buffer data."""
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)

    def flush(self) -> None:
        """Send the buffered data, unless the connection is closing."""
        data, self._buffer = self._buffer, []
        if data and not self._transport.is_closing():
            self._transport.write(b"".join(data))

    def close(self) -> None:
        """Send the buffered data and close the connection."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

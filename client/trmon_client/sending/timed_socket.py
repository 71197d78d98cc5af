"""A socket whose reads of one answer all end by one time: its own timeout starts anew with each byte."""

from __future__ import annotations

import io
import time
from typing import Any


class TimedSocket:
    """Stands for a connection's socket; every read ends by `read_until`, a time of `time.monotonic`.

    It has the reads of both urllib3, which makes a file, and urllib3-future, which calls `recv`.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.read_until = float("inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, *args: Any) -> bytes:
        """Receive as a socket does. Errors: TimeoutError."""
        self.limit_read()
        data: bytes = self._sock.recv(*args)
        return data

    def makefile(self, mode: str, **_options: Any) -> io.BufferedReader:
        """Return a file to read from; `mode` is "rb"."""
        return io.BufferedReader(_TimedReader(self, self._sock.makefile(mode, buffering=0)))

    def limit_read(self) -> None:
        """Let the next read take no longer than what is left. Errors: TimeoutError if nothing is."""
        left = self.read_until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        if left < float("inf"):
            self._sock.settimeout(left)


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: TimedSocket, file: Any) -> None:
        self._timed_socket = sock
        self._file = file

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read as a socket's file does. Errors: TimeoutError."""
        self._timed_socket.limit_read()
        n_bytes: int | None = self._file.readinto(buffer)
        return n_bytes

    def close(self) -> None:
        """Close the socket's file, which closes a socket that waits for it."""
        self._file.close()
        super().close()

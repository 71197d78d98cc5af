"""The on-call person of the demo: a webhook receiver that keeps what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


class Pager:
    """Every notification that came, oldest first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._notes: list[dict[str, Any]] = []

    def notes(self) -> list[dict[str, Any]]:
        """Return a copy of what came so far."""
        with self._lock:
            return list(self._notes)

    def take(self, note: dict[str, Any]) -> None:
        """Keep one more."""
        with self._lock:
            self._notes.append(note)


@contextmanager
def listening(pager: Pager) -> Iterator[str]:
    """Receive webhooks for a pager on a free loopback port; yields the URL to post to."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pager.take(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Stay out of the demo's terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, name="demo-pager", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""The demo's webhook receiver: stores the notifications that it receives."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self


class Pager:
    """Listens on a free loopback port; `alerts` are the received ones, oldest first, each with its run's name."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._server.serve_forever, name="demo-pager", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the webhook."""
        return f"http://127.0.0.1:{self._server.server_port}/alerts"

    def take(self, message: dict[str, Any]) -> None:
        """Store the alerts of a message."""
        self.alerts += [alert | {"run": alert.get("run", message["run"])["run"]} for alert in message["alerts"]]


def _handler(pager: Pager) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pager.take(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, to keep the demo's terminal clean."""

    return Handler

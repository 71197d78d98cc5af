"""One keep-alive connection, and what posting on it took; the same for every service that is measured."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; status 0 stands for a connection that broke before one came."""

    status: int
    body: bytes
    seconds: float
    retry_after_seconds: float = 0.0


class Connection:
    """Posts to one service; not thread-safe. A broken connection is made anew at the next post."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1", f"load stays on this machine, and {url} is elsewhere"
        self._http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)

    def post(self, path: str, body: bytes, *, content_type: str, method: str = "POST") -> Answer:
        """Return the answer to a body, and how long it took."""
        return self._ask(method, path, body=body, headers={"Content-Type": content_type})

    def get(self, path: str) -> Answer:
        """Return the answer to a question."""
        return self._ask("GET", path, body=None, headers={})

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ask(self, method: str, path: str, *, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        began = time.perf_counter()
        try:
            self._http.request(method, path, body, dict(headers))
            response = self._http.getresponse()
            content = response.read()
        except (http.client.HTTPException, OSError):
            self._http.close()
            return Answer(0, b"", time.perf_counter() - began)
        wait = float(response.headers.get("Retry-After", "0"))
        return Answer(response.status, content, time.perf_counter() - began, retry_after_seconds=wait)

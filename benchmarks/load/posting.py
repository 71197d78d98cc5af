"""Posts requests over keep-alive connections, one after the other on each, for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.load.connection import Connection
from benchmarks.load.processes import cpu_seconds

Request = tuple[str, str, bytes, str]
"""Method, path, body and content type."""


@dataclass(slots=True)
class Posted:
    """The posted requests: each response time, the total time, and the service's CPU time."""

    answers_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Responses per second."""
        return len(self.answers_seconds) / self.seconds

    @property
    def cpu_ms(self) -> float:
        """The service's CPU time per request, in milliseconds."""
        return self.cpu_seconds / len(self.answers_seconds) * 1000

    def quantile_ms(self, share: float) -> float:
        """Return the response time that this share of the requests did not exceed, in milliseconds."""
        return float(np.quantile(self.answers_seconds, share)) * 1000


def post(
    url: str, request: Callable[[int, int], Request], *, pid: int, n_connections: int, seconds: float, first: int
) -> Posted:
    """Post over several connections for a time and return the results; requests on broken connections do not count.

    Errors: AssertionError for any response other than 200.

    Args: request: returns the request for a connection's number and a count that starts at `first`.
    """
    posted, failures = Posted(), []

    def run(number: int) -> None:
        connection, count = Connection(url), first
        while time.perf_counter() - began < seconds and not failures:
            method, path, body, content_type = request(number, count)
            answer = connection.post(path, body, content_type=content_type, method=method)
            if answer.status == 200:
                posted.answers_seconds.append(answer.seconds)
            elif answer.status:
                failures.append(f"{path}: {answer.status} {answer.body[:200]!r}")
            count += 1
        connection.close()

    began, cpu = time.perf_counter(), cpu_seconds([pid])
    threads = [threading.Thread(target=run, args=(number,)) for number in range(n_connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    posted.seconds, posted.cpu_seconds = time.perf_counter() - began, cpu_seconds([pid]) - cpu
    return posted

"""Sends a workload over several connections, as fast as possible or at a pace."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from benchmarks.load.connection import Connection
from benchmarks.load.workload import PROJECT, Workload
from trmon_client.core import wire

OK, TOO_MANY, BROKEN = 200, 429, 0
RECONNECT_SECONDS = 0.1
MAX_WAIT_SECONDS = 1.0

Place = tuple[int, int, int]
"""Run, step and rank of a report."""


@dataclass(slots=True)
class Sent:
    """The reports sent by one connection: those acknowledged, the time of each, and the number of retries.

    `acknowledged_at` is when, by `time.perf_counter`. `seconds` count from when a report was due, so that queueing
    behind a slow report shows.
    """

    acknowledged: list[Place] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    broken: int = 0
    duplicates: int = 0
    failures: list[str] = field(default_factory=list)

    def __add__(self, other: Sent) -> Sent:
        return Sent(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Sent)))

    def quantile_ms(self, share: float) -> float:
        """Return the acknowledgement time in ms that this share of the reports did not exceed, retries included."""
        return float(np.quantile(self.seconds, share)) * 1000 if self.seconds else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When reports are sent, for `seconds`: `per_second` in total, evenly or one of each connection at once.

    Without `per_second`, each report follows the acknowledgement of the last.
    """

    seconds: float
    per_second: float | None = None
    at_once: bool = False


class Senders:
    """Connections that send a workload, each in its own thread, until the time is over or they are stopped."""

    def __init__(
        self,
        url: Callable[[], str],
        workload: Workload,
        *,
        n_connections: int,
        pace: Pace,
        steps: Iterable[int] | None = None,
    ) -> None:
        """Send these steps or, without steps, one after the other until the time is over."""
        self._url = url
        self._steps = steps
        self._workload = workload
        self._pace = pace
        self._stopping, self._abandoned = threading.Event(), threading.Event()
        self._sent = [Sent() for _ in range(n_connections)]
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n_connections)]

    def start(self) -> None:
        self._began = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing new; reports in flight are still retried until they are acknowledged."""
        self._stopping.set()

    def abandon(self) -> None:
        """Stop at once, also with reports that are not acknowledged."""
        self._abandoned.set()
        self._stopping.set()

    def wait(self) -> tuple[Sent, float]:
        """Return all sent reports once they are acknowledged, and the seconds that took."""
        for thread in self._threads:
            thread.join()
        seconds = time.perf_counter() - self._began
        return sum(self._sent, Sent()), seconds

    @property
    def acknowledged(self) -> int:
        return sum(len(sent.acknowledged) for sent in self._sent)

    @property
    def is_sending(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int) -> None:
        sent, connection = self._sent[number], Connection(self._url())
        steps = itertools.count() if self._steps is None else self._steps
        for count, place in enumerate(self._workload.lane(number, of=len(self._sent), steps=steps)):
            due = self._wait(count, number)
            if due is None or sent.failures:
                break
            connection = self._send(place, connection, sent=sent, due=due)
        connection.close()

    def _wait(self, count: int, number: int) -> float | None:
        """Wait until a report is due and return that time; None if the time is over."""
        due = now = time.perf_counter()
        if self._pace.per_second is not None:
            place = count * len(self._sent) + (0 if self._pace.at_once else number)
            due = self._began + place / self._pace.per_second
            self._stopping.wait(max(due - now, 0.0))
        return None if self._stopping.is_set() or due - self._began >= self._pace.seconds else due

    def _send(self, place: Place, connection: Connection, *, sent: Sent, due: float) -> Connection:
        """Send a report until it is acknowledged, as a client does through outages."""
        run, step, rank = place
        body = self._workload.report(run, step=step, rank=rank)
        path = f"/api/v1/runs/{PROJECT}/{self._workload.run(run)}/reports"
        while not self._abandoned.is_set():
            answer = connection.post(path, body, content_type=wire.MSGPACK)
            if answer.status == OK:
                now = time.perf_counter()
                sent.acknowledged.append(place)
                sent.acknowledged_at.append(now)
                sent.seconds.append(now - due)
                sent.duplicates += wire.decode_ack(answer.body).status == "duplicate"
                return connection
            if answer.status == BROKEN:
                sent.broken += 1
                time.sleep(RECONNECT_SECONDS)
                connection = Connection(self._url())
            elif answer.status == TOO_MANY or answer.status >= 500:
                sent.refused += 1
                time.sleep(min(answer.retry_after_seconds, MAX_WAIT_SECONDS))
            else:
                sent.failures.append(f"{answer.status} {answer.body[:200]!r}")
                return connection
        return connection

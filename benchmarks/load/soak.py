"""Kills each process under load at random moments; verifies that no data is lost and no notification is repeated.

PYTHONPATH=. python -m benchmarks.load.soak [--rounds 20] [--seed 0] [--fleet]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.load.connection import Connection
from benchmarks.load.deployments import Deployment, embedded, fleet
from benchmarks.load.sending import Pace, Senders, Sent
from benchmarks.load.shutdown import unwind_on_sigterm
from benchmarks.load.verification import CLOSE_SECONDS, Verdict, items, verify
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.receiver import WebhookServer

LONGEST_SECONDS = 3600.0
PAUSE_SECONDS = (1.0, 4.0)
"""The shortest and the longest time between a start and the next kill."""
DOWNTIME_SECONDS = (0.0, 1.0)
"""The downtime of a killed process."""
DRIFT_SECONDS = 120.0
"""Time limit for the service to catch up after the last kill."""
PER_SECOND = 60.0
LEASE_SECONDS = "3"
Page: TypeAlias = tuple[str, str, int, str]
"""The key of a notification: the run, the rule, the first step, and whether it fires or has resolved."""
WORKLOAD = Workload(n_runs=3, n_ranks=2, n_sequences=16, drift_from=25, drift_steps=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill: the process, the time, and the seconds until it was ready again."""

    victim: str
    at_seconds: float
    recovery_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """The results of a soak; `repeated_events` and `repeated_pages` count repeated alert events and notifications.

    `missing_pages` counts notifications that the service marked as delivered but the receiver did not get.
    """

    kills: tuple[Kill, ...]
    sent: Sent
    verdict: Verdict
    n_events: int
    repeated_events: int
    n_pages: int
    repeated_pages: int
    missing_pages: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost or repeated."""
        wrong = self.repeated_events + self.repeated_pages + self.missing_pages
        return self.verdict == Verdict(0, 0) and not wrong


def soak(deployment: Deployment, pager: WebhookServer, *, n_rounds: int, seed: int) -> SoakResult:
    """Send reports and, in each round, kill and restart every process in random order; return the final state."""
    chance = random.Random(seed)
    pace = Pace(seconds=LONGEST_SECONDS, per_second=PER_SECOND)
    senders = Senders(lambda: deployment.url, WORKLOAD, n_connections=6, pace=pace)
    began = time.perf_counter()
    senders.start()
    kills = []
    try:
        for name in chain.from_iterable(_shuffled(deployment.victims, chance) for _ in range(n_rounds)):
            time.sleep(chance.uniform(*PAUSE_SECONDS))
            at = time.perf_counter() - began
            recovery = _kill(deployment, name, downtime_seconds=chance.uniform(*DOWNTIME_SECONDS))
            kills.append(Kill(victim=name, at_seconds=at, recovery_seconds=recovery))
        _wait_for_drift(senders)
    finally:
        senders.stop()
        sent, _ = senders.wait()
    assert not sent.failures, sent.failures[:3]
    verdict = verify(deployment.url, WORKLOAD, sent.acknowledged)
    transitions = _transitions(deployment.url)
    delivered = _delivered(deployment.url)
    pages = _pages(pager)
    return SoakResult(
        kills=tuple(kills),
        sent=sent,
        verdict=verdict,
        n_events=sum(map(len, transitions)),
        repeated_events=sum(one == other for states in transitions for one, other in pairwise(states)),
        n_pages=len(pages),
        repeated_pages=pages.total() - len(pages),
        missing_pages=len(delivered - pages.keys()),
    )


def variables_for(pager: WebhookServer) -> dict[str, str]:
    """Return the service's settings: a webhook receiver, and short lease times to detect dead workers."""
    return {"webhook_url": pager.url, "webhook_allow_hosts": "127.0.0.1", "lease_seconds": LEASE_SECONDS}


def _shuffled(names: Iterable[str], chance: random.Random) -> list[str]:
    ordered = sorted(names)
    return chance.sample(ordered, k=len(ordered))


def _kill(deployment: Deployment, name: str, *, downtime_seconds: float) -> float:
    began = time.perf_counter()
    victim = deployment.victims[name]
    victim.kill()
    time.sleep(downtime_seconds)
    victim.start()
    return time.perf_counter() - began


def _wait_for_drift(senders: Senders) -> None:
    """Continue until every run has drifted for long enough to fire: a soak without alerts would not test them."""
    assert WORKLOAD.drift_from is not None
    needed = (WORKLOAD.drift_from + 15) * WORKLOAD.n_runs * WORKLOAD.n_ranks
    deadline = time.monotonic() + DRIFT_SECONDS
    while senders.acknowledged < needed:
        assert time.monotonic() < deadline, f"only {senders.acknowledged} of {needed} reports acknowledged"
        time.sleep(0.1)


def _transitions(url: str) -> list[list[str]]:
    """Return the state transitions of each alert; two equal states in a row are a repetition."""
    connection = Connection(url)
    alerts = items(connection, f"/api/v1/alerts?project={PROJECT}")
    transitions = []
    for identity in {alert["identity"] for alert in alerts}:
        events = [*items(connection, f"/api/v1/alerts/events?identity={identity}")]
        transitions.append([event["state"] for event in reversed(events)])
    connection.close()
    return transitions


def _delivered(url: str) -> set[Page]:
    """Return the notifications that the service marked as delivered, once none is pending."""
    connection = Connection(url)
    deadline = time.monotonic() + CLOSE_SECONDS
    path = "/api/v1/deliveries?state="
    while any(items(connection, f"{path}due")):
        assert time.monotonic() < deadline, f"deliveries still wait after {CLOSE_SECONDS} s"
        time.sleep(0.2)
    delivered = {
        _page(one["run"], one["body"]["alert"], one["told_state"]) for one in items(connection, f"{path}delivered")
    }
    connection.close()
    return delivered


def _pages(pager: WebhookServer) -> Counter[Page]:
    """Return the received notifications with their counts; a retry with the same key is not a repetition."""
    messages = [json.loads(posted.body) for posted in pager.posted]
    received = {alert["key"]: (message["run"]["run"], alert) for message in messages for alert in message["alerts"]}
    return Counter(_page(run, alert, alert["status"]) for run, alert in received.values())


def _page(run: str, alert: Mapping[str, Any], state: str) -> Page:
    return run, alert["rule"], alert["since_step"], state


@contextmanager
def _run_soak(*, is_fleet: bool, n_rounds: int, seed: int) -> Iterator[SoakResult]:
    deploy = fleet if is_fleet else embedded
    with (
        tempfile.TemporaryDirectory() as folder,
        WebhookServer() as pager,
        deploy(Path(folder), **variables_for(pager)) as deployment,
    ):
        yield soak(deployment, pager, n_rounds=n_rounds, seed=seed)


def main() -> None:
    """Run the soak, print the table, and fail if data was lost or repeated."""
    unwind_on_sigterm()
    parser = argparse.ArgumentParser(prog="benchmarks.load.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="number of kills per process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--fleet", action="store_true", help="kill PostgreSQL, a backend, Redis, the API process and a worker"
    )
    given = parser.parse_args()
    with _run_soak(is_fleet=given.fleet, n_rounds=min(given.rounds, 100), seed=given.seed) as result:
        console = Console(width=120)
        console.print(_table(result))
        console.print(_summary(result))
    raise SystemExit(0 if result.is_clean else 1)


def _table(result: SoakResult) -> Table:
    """Return one row per process: when it was killed first and last, and its recovery times."""
    table = Table("killed", "times", "first at s", "last at s", "away s, median", "worst", title="SIGKILL under load")
    for name in sorted({kill.victim for kill in result.kills}):
        kills = [kill for kill in result.kills if kill.victim == name]
        recovery = [kill.recovery_seconds for kill in kills]
        table.add_row(
            name,
            str(len(kills)),
            f"{kills[0].at_seconds:.0f}",
            f"{kills[-1].at_seconds:.0f}",
            f"{statistics.median(recovery):.1f}",
            f"{max(recovery):.1f}",
        )
    return table


def _summary(result: SoakResult) -> str:
    sent, verdict = result.sent, result.verdict
    return (
        f"{len(sent.acknowledged):,} reports acknowledged, {sent.broken:,} connections broken, "
        f"{sent.duplicates:,} sent again and known; lost {verdict.lost}, twice {verdict.duplicated}; "
        f"{result.n_events} alert events, {result.repeated_events} repeated; "
        f"{result.n_pages} pages, {result.repeated_pages} repeated, {result.missing_pages} missing"
    )


if __name__ == "__main__":
    main()

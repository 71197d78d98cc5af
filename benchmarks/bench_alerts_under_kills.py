"""How often a receiver gets each alert while service and worker are killed at random moments.

In each round runs crash, and the service or its worker gets SIGKILL, most often while their alerts are delivered. A
trainer sends a message again until it is acknowledged; the receiver answers after 50 ms.

PYTHONPATH=. python benchmarks/bench_alerts_under_kills.py [--kills 30] [--minutes 30] [--runs 8] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.fixtures.alerting import CRASH
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import statuses, step_report
from trmon.domain.identity import RunKey
from trmon_client.core import wire

KILL_WITHIN_SECONDS = 0.4
IN_DELIVERY = 0.75
"""The share of kills that come after the first message of a round."""
ANSWER_SECONDS = 0.05
WAIT_SECONDS = 300.0
QUIET_SECONDS = 5.0
"""In which repetitions would come."""


class SlowReceiver(WebhookServer):
    """A receiver that answers after a while."""

    def next_status(self) -> int:
        time.sleep(ANSWER_SECONDS)
        return super().next_status()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the receiver got: alerts that never came, repetitions by their key, and the wait for each alert."""

    n_kills: int
    n_alerts: int
    n_missing: int
    n_again_same_key: int
    n_other_key: int
    waits_seconds: tuple[float, ...]


def main() -> None:
    """Print what the receiver got."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=30.0, help="no further kill after this time")
    parser.add_argument("--runs", type=int, default=8, help="that crash in each round")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = alerts_under_kills(
            Path(folder), n_kills=given.kills, n_runs=given.runs, seed=given.seed, seconds=60 * given.minutes
        )
    print("| kills | alerts | missing | again under the same key | under another key | wait s, median | worst |")
    print(
        f"| {found.n_kills} | {found.n_alerts} | {found.n_missing} | {found.n_again_same_key} | {found.n_other_key} "
        f"| {statistics.median(found.waits_seconds):.1f} | {max(found.waits_seconds):.1f} |"
    )


def alerts_under_kills(folder: Path, *, n_kills: int, n_runs: int, seed: int, seconds: float) -> Outcome:
    """Kill a service, and its worker, in turn. Args: seconds: after which no further kill follows."""
    rng, crashed_at = random.Random(seed), {}
    with SlowReceiver() as receiver:
        service = ServiceProcess(
            folder,
            webhook_url=receiver.url,
            webhook_allow_hosts="127.0.0.1",
            delivery_backoff_seconds="0.1",
            stall_floor_seconds="86400",
        )
        try:
            ends_at, number = time.monotonic() + seconds, 0
            while number < n_kills and time.monotonic() < ends_at:
                for index in range(n_runs):
                    name = f"run-{number}-{index}"
                    _crash(service, RunKey("math", name))
                    crashed_at[name] = time.monotonic()
                if rng.random() < IN_DELIVERY:
                    _await_message(receiver)
                time.sleep(rng.uniform(0.0, KILL_WITHIN_SECONDS))
                if number % 2:
                    os.kill(_worker_of(service), signal.SIGKILL)
                else:
                    service.kill()
                    service.start()
                number += 1
                print(f"{number} kills, {len(receiver.posted)} messages", file=sys.stderr, flush=True)
            return _outcome(receiver, crashed_at, number)
        finally:
            service.stop()


def _crash(service: ServiceProcess, key: RunKey) -> None:
    """Report three steps and a crash, each message until it is acknowledged."""
    messages = [wire.Start(**ORIGIN), *(step_report(step) for step in range(3)), CRASH]
    while True:
        try:
            with httpx.Client(base_url=service.url, timeout=30.0) as client:
                assert set(statuses(client, key, *messages)) <= {"stored", "duplicate"}
                return
        except (httpx.HTTPError, AssertionError) as error:
            if "429" not in str(error) and "503" not in str(error) and not isinstance(error, httpx.HTTPError):
                raise
            time.sleep(0.2)


def _await_message(receiver: WebhookServer) -> None:
    n_posted, deadline = len(receiver.posted), time.monotonic() + 60
    while len(receiver.posted) == n_posted and time.monotonic() < deadline:
        time.sleep(0.005)


def _worker_of(service: ServiceProcess) -> int:
    """Return the service's worker process, once there is one."""
    pid = service.process.pid
    while True:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                if children := (thread / "children").read_text().split():
                    return int(children[0])
        time.sleep(0.05)


def _received(receiver: WebhookServer) -> Iterator[tuple[str, str, float]]:
    """Yield run, key and time of each notification of a crash."""
    for posted in list(receiver.posted):
        message = json.loads(posted.body)
        for alert in message["alerts"]:
            if alert["rule"] == "crashed":
                yield message["run"]["run"], alert["key"], posted.at


def _outcome(receiver: WebhookServer, crashed_at: dict[str, float], n_kills: int) -> Outcome:
    deadline = time.monotonic() + WAIT_SECONDS
    while {run for run, _, _ in _received(receiver)} != crashed_at.keys() and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(QUIET_SECONDS)
    keys: dict[str, list[str]] = defaultdict(list)
    waits: dict[str, float] = {}
    for run, key, at in _received(receiver):
        keys[run].append(key)
        waits.setdefault(run, at - crashed_at[run])
    return Outcome(
        n_kills=n_kills,
        n_alerts=len(crashed_at),
        n_missing=len(crashed_at) - len(keys),
        n_again_same_key=sum(len(found) - len(set(found)) for found in keys.values()),
        n_other_key=sum(len(set(found)) - 1 for found in keys.values()),
        waits_seconds=tuple(waits.values()),
    )


if __name__ == "__main__":
    main()

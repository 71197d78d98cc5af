"""How often a receiver gets each alert while service and worker are killed at random moments.

In each round runs crash, and the service or its worker gets SIGKILL within the next 1.5 seconds. A trainer sends
a message again until it is acknowledged, and the receiver answers after 50 ms, so that kills fall into deliveries.

PYTHONPATH=. python benchmarks/bench_alerts_under_kills.py [--kills 30] [--minutes 30] [--runs 4] [--seed 0]
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
from pathlib import Path

import httpx

from tests.fixtures.alerting import CRASH
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import statuses, step_report
from trmon.domain.identity import RunKey
from trmon_client.core import wire

KILL_WITHIN_SECONDS = 1.5
ANSWER_SECONDS = 0.05
WAIT_SECONDS = 300.0


class SlowReceiver(WebhookServer):
    """A receiver that answers after a while."""

    def next_status(self) -> int:
        time.sleep(ANSWER_SECONDS)
        return super().next_status()


def main() -> None:
    """Print what the receiver got."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=30.0, help="no further kill after this time")
    parser.add_argument("--runs", type=int, default=4, help="that crash in each round")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    crashed_at: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, SlowReceiver() as receiver:
        service = ServiceProcess(
            Path(folder),
            webhook_url=receiver.url,
            webhook_allow_hosts="127.0.0.1",
            delivery_backoff_seconds="0.1",
            stall_floor_seconds="86400",
        )
        try:
            ends_at, number = time.monotonic() + 60 * given.minutes, 0
            while number < given.kills and time.monotonic() < ends_at:
                for index in range(given.runs):
                    name = f"run-{number}-{index}"
                    _crash(service, RunKey("math", name))
                    crashed_at[name] = time.monotonic()
                time.sleep(rng.uniform(0.0, KILL_WITHIN_SECONDS))
                if number % 2:
                    os.kill(_worker_of(service), signal.SIGKILL)
                else:
                    service.kill()
                    service.start()
                number += 1
                print(f"{number} kills, {len(receiver.posted)} messages", file=sys.stderr, flush=True)
            _report(receiver, crashed_at, number)
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


def _worker_of(service: ServiceProcess) -> int:
    """Return the service's worker process, once there is one."""
    pid = service.process.pid
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)


def _received(receiver: WebhookServer) -> Iterator[tuple[str, str, float]]:
    """Yield run, key and time of each notification of a crash."""
    for posted in list(receiver.posted):
        message = json.loads(posted.body)
        for alert in message["alerts"]:
            if alert["rule"] == "crashed":
                yield message["run"]["run"], alert["key"], posted.at


def _report(receiver: WebhookServer, crashed_at: dict[str, float], n_kills: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while {run for run, _, _ in _received(receiver)} != crashed_at.keys() and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(5.0)
    keys: dict[str, list[str]] = defaultdict(list)
    waits: dict[str, float] = {}
    for run, key, at in _received(receiver):
        keys[run].append(key)
        waits.setdefault(run, at - crashed_at[run])
    n_again = sum(len(found) - len(set(found)) for found in keys.values())
    n_other = sum(len(set(found)) - 1 for found in keys.values())
    print("| kills | alerts | missing | again under the same key | under another key | wait s, median | worst |")
    print(
        f"| {n_kills} | {len(crashed_at)} | {len(crashed_at) - len(keys)} | {n_again} | {n_other} "
        f"| {statistics.median(waits.values()):.1f} | {max(waits.values()):.1f} |"
    )


if __name__ == "__main__":
    main()

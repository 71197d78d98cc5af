"""Measures the time from an acknowledged report to the webhook, under a steady load of reports; prints a table.

PYTHONPATH=. python benchmarks/bench_time_to_alert.py --seconds 60

The service is a separate process, the receiver a real HTTP server. Reports leave at fixed times, whatever the service
does. Every twentieth report of a run trips one of four rules, and the next report clears it: no rule flaps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

import httpx
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from tests.fixtures import messages
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

SEQUENCES = 64
RUNS = 10
SENDERS = 5
"""A divisor of the number of runs: one connection sends all reports of a run, in order."""
TRIPS_EVERY_STEPS = 20
RULES = 4
RULE = """
- name: reward_{k}
  severity: page
  immune_steps: 0
  when: {{all: [{{signal: reward_mean, above: {k}}}, {{signal: reward_mean, below: {above}}}]}}
  summary: "{{run}}: {{value}}"
  runbook: "None: this is a benchmark."
"""

NotificationKey: TypeAlias = tuple[str, str, str, int]
"""The key of a notification: the run, the rule, whether it fires or has resolved, and the step."""


@dataclass
class SendLog:
    """When each report that trips or clears a rule was acknowledged, and the errors."""

    acknowledged: dict[NotificationKey, float] = field(default_factory=dict)
    late_seconds: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)


def main() -> None:
    """Send reports, wait for the notifications, and print the delays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--per-second", type=float, default=100.0)
    given = parser.parse_args()
    load_before, log = os.getloadavg()[0], SendLog()
    with tempfile.TemporaryDirectory() as folder, WebhookServer() as receiver:
        rules = Path(folder) / "rules.yaml"
        rules.write_text("".join(RULE.format(k=k, above=k + 1) for k in range(1, RULES + 1)))
        service = ServiceProcess(
            Path(folder) / "data",
            webhook_url=receiver.url,
            webhook_allow_hosts="127.0.0.1",
            rules_file=str(rules),
            log_level="error",
        )
        _warm_up(service)
        _send(service, log, n_reports=int(given.seconds * given.per_second), per_second=given.per_second)
        eventually(lambda: log.acknowledged.keys() <= dict(_arrivals(receiver)).keys())
        service.stop()
        arrived = dict(_arrivals(receiver))
    _print(log, arrived, given=given, loads=(load_before, os.getloadavg()[0]))


def _warm_up(service: ServiceProcess) -> None:
    """Wait until the worker process is ready: its start is not measured."""
    with service.client() as client:
        path = "/api/v1/runs/bench/warm-up"
        content = wire.encode(_message(0, reward=0.0))
        sent = client.post(f"{path}/reports", content=content, headers={"Content-Type": wire.MSGPACK})
        assert sent.status_code == 200, sent.text
        eventually(lambda: client.get(path).json()["last_step"] == 0)


def _send(service: ServiceProcess, log: SendLog, *, n_reports: int, per_second: float) -> None:
    """Send reports over several connections, each report at its own time."""
    began = time.monotonic() + 1.0

    def send(sender: int) -> None:
        with service.client() as client:
            for i in range(sender, n_reports, SENDERS):
                due = began + i / per_second
                time.sleep(max(due - time.monotonic(), 0.0))
                log.late_seconds.append(time.monotonic() - due)
                _report(client, i, log=log)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _report(client: httpx.Client, i: int, *, log: SendLog) -> None:
    run, step = f"run-{i % RUNS}", i // RUNS
    trip, phase = divmod(step + 3 * (i % RUNS), TRIPS_EVERY_STEPS)
    rule = 1 + trip % RULES
    answer = client.post(
        f"/api/v1/runs/bench/{run}/reports",
        content=wire.encode(_message(step, reward=rule + 0.5 if phase == 1 else 0.0)),
        headers={"Content-Type": wire.MSGPACK},
    )
    at = time.monotonic()
    if answer.status_code != 200:
        log.refused.append(answer.status_code)
    elif phase in (1, 2):
        log.acknowledged[run, f"reward_{rule}", "firing" if phase == 1 else "resolved", step] = at


@cache
def _parcel(reward: float) -> wire.PackedColumns:
    return wire.pack_columns(messages.columns(SEQUENCES, reward=np.full(SEQUENCES, reward)))


def _message(step: int, *, reward: float) -> wire.Report:
    """Return the only chunk of a step, so that its batch closes at once."""
    return wire.Report(
        **messages.ORIGIN,
        step=step,
        parcel=_parcel(reward),
        finished=[wire.ChunkCount(step, None, 1)],
        sent_at=time.time(),
    )


def _arrivals(receiver: WebhookServer) -> Iterator[tuple[NotificationKey, float]]:
    for posted in list(receiver.posted):
        message = msgspec.json.decode(posted.body)
        for alert in message["alerts"]:
            yield (message["run"]["run"], alert["rule"], alert["status"], alert["step"]), posted.at


def _print(
    log: SendLog, arrived: dict[NotificationKey, float], *, given: argparse.Namespace, loads: tuple[float, float]
) -> None:
    table = Table("notification", "n", "p50 ms", "p90 ms", "p99 ms", "max ms", title="From acknowledged to arrived")
    for state in ("firing", "resolved"):
        milliseconds = [
            1000 * (arrived[notification] - at)
            for notification, at in log.acknowledged.items()
            if notification[2] == state
        ]
        quantiles = np.quantile(milliseconds, (0.5, 0.9, 0.99, 1.0))
        table.add_row(state, str(len(milliseconds)), *(f"{value:.0f}" for value in quantiles))
    Console().print(table)
    late = 1000 * np.quantile(log.late_seconds, (0.5, 0.99))
    print(
        f"{given.per_second:.0f} reports/s of {SEQUENCES} sequences x 3 pairs, {RUNS} runs, {given.seconds:.0f} s; "
        f"refused {len(log.refused)}; sent late by {late[0]:.0f} ms (p50), {late[1]:.0f} ms (p99); "
        f"load {loads[0]:.1f} before, {loads[1]:.1f} after"
    )


if __name__ == "__main__":
    main()

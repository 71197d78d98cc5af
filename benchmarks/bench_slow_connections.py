"""How long other clients wait while many connections send one byte a second, without a token.

An attacking connection is opened again as soon as it is closed. The victim opens a connection for each request.

PYTHONPATH=. python benchmarks/bench_slow_connections.py [--connections 2000] [--seconds 40] [--descriptors 1024]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import selectors
import socket
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load.connection import Answer, Connection
from tests.fixtures.messages import as_json, report
from tests.fixtures.service import ServiceProcess

HEADS = {
    "headers": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: ",
    "bodies": b"POST /api/v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000000\r\n\r\n[",
}


def main() -> None:
    """Print a row for a quiet service, and for each kind of slow connection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--descriptors", type=int, default=1024, help="the service's limit")
    given = parser.parse_args()
    attacks = {kind: _Attack(head, given.connections) for kind, head in HEADS.items()}
    resource.setrlimit(resource.RLIMIT_NOFILE, (given.descriptors, given.descriptors))
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(Path(folder))
        try:
            print("| attack | opened | requests | not answered | 5xx | median ms | longest ms | acknowledged | lost |")
            _row(service, "none", given.seconds / 4)
            for kind, attack in attacks.items():
                attack.begin(service.url)
                time.sleep(2.0)
                _row(service, kind, given.seconds, attack)
                attack.process.terminate()
                attack.process.join()
                time.sleep(2.0)
        finally:
            for attack in attacks.values():
                attack.process.terminate()
            service.stop()


class _Attack:
    """A process that waits for the service's URL; it starts before the limit of descriptors, which it needs itself."""

    def __init__(self, head: bytes, n: int) -> None:
        self.opened = multiprocessing.Value("L", 0)
        self._sender, receiver = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_attack, args=(receiver, head, n, self.opened), daemon=True)
        self.process.start()

    def begin(self, url: str) -> None:
        self._sender.send(url)


def _attack(urls: Any, head: bytes, n: int, opened: Any) -> None:
    """Keep n connections open, each with one more byte a second, until the process ends."""
    address = urlsplit(urls.recv())
    selector = selectors.DefaultSelector()
    lines: set[socket.socket] = set()
    beat = time.monotonic()
    while True:
        for _ in range(min(100, n - len(lines))):
            line = socket.socket()
            try:
                line.settimeout(0.2)
                line.connect((address.hostname, address.port))
                line.sendall(head)
            except OSError:
                line.close()
                break
            line.setblocking(False)
            selector.register(line, selectors.EVENT_READ, data=line)
            lines.add(line)
            opened.value += 1
        ended: set[socket.socket] = {key.data for key, _ in selector.select(0.02)}
        if time.monotonic() - beat > 1.0:
            beat = time.monotonic()
            ended |= {line for line in lines if not _drips(line)}
        for line in ended:
            selector.unregister(line)
            line.close()
            lines.discard(line)


def _drips(line: socket.socket) -> bool:
    try:
        return line.send(b"x") == 1
    except BlockingIOError:
        return True
    except OSError:
        return False


def _row(service: ServiceProcess, name: str, seconds: float, attack: _Attack | None = None) -> None:
    ends = time.monotonic() + seconds
    answers: list[Answer] = []
    steps: list[int] = []
    step = 0
    while time.monotonic() < ends:
        step += 1
        connection = Connection(service.url, timeout_seconds=20.0)
        sent = as_json(report(step=step))
        answers.append(connection.post(f"/api/v1/runs/math/{name}/reports", sent, content_type="application/json"))
        steps += [step] if answers[-1].status == 200 else []
        connection.close()
        connection = Connection(service.url, timeout_seconds=20.0)
        answers.append(connection.get("/readyz"))
        connection.close()
        time.sleep(0.02)
    time.sleep(1.0)
    stored = _stored(service, name) if steps else 0
    waits = sorted(answer.seconds * 1000 for answer in answers)
    opened = attack.opened.value if attack else 0
    print(
        f"| {name} | {opened:,} | {len(answers):,} | {sum(answer.status == 0 for answer in answers)} "
        f"| {sum(answer.status >= 500 for answer in answers)} | {waits[len(waits) // 2]:.1f} | {waits[-1]:,.0f} "
        f"| {len(steps):,} | {len(steps) - stored} |",
        flush=True,
    )


def _stored(service: ServiceProcess, run: str) -> int:
    query = """SELECT count(*) FROM report JOIN attempt ON attempt.id = report.attempt_id
        JOIN run ON run.id = attempt.run_id WHERE run.name = ?"""
    with sqlite3.connect(f"file:{service.data_dir / 'trmon.sqlite'}?mode=ro", uri=True) as database:
        [count] = database.execute(query, (run,)).fetchone()
    return int(count)


if __name__ == "__main__":
    main()

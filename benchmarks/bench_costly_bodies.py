"""What small bodies that are costly to open do to another client, and to the memory of the service.

PYTHONPATH=. python benchmarks/bench_costly_bodies.py [--attack turns] [--pids]

The attacker sends from 127.0.0.2 and counts as another caller; the victim posts ordinary reports and reads the fleet.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np

from benchmarks.load.connection import Connection
from tests.fixtures import messages
from tests.fixtures.service import ServiceProcess
from trmon_client.core import wire
from trmon_client.core.columns import TurnColumns
from trmon_client.core.inputs.labels import MAX_TURNS

ATTACKER = ("127.0.0.2", 0)
ATTACK_SECONDS = 5.0
START_SECONDS = 5.0
MIB = 1 << 20


def report_with_turns(step: int) -> bytes:
    """Return a report whose turns are zeros, and many."""
    content = messages.columns(1)
    turns = TurnColumns(
        np.array([MAX_TURNS]),
        {
            "n_tokens": np.zeros(MAX_TURNS, "<i8"),
            **{
                f"{pair}_{stem}": np.zeros(MAX_TURNS, "<f8")
                for pair in ("mismatch", "staleness", "total")
                for stem in ("sum_d", "sum_k3", "max_abs_d", "sum_binary_kl")
            },
        },
    )
    return wire.encode(
        messages.report(
            content, step=step, project="attack", run="turns", accepted=b"\x01", turns=wire.pack_turns(turns)
        )
    )


def empty_lists(n_bytes: int) -> bytes:
    """Return a start whose configuration is a list of empty lists."""
    head = msgspec.msgpack.encode(wire.Start(**messages.ORIGIN, config={"a": 0}))
    at = head.index(b"\xa1a\x00") + 2
    return head[:at] + b"\xdd" + n_bytes.to_bytes(4, "big") + b"\x90" * n_bytes + head[at + 1 :]


REPORTS = "/api/v1/reports"
ONE = "/api/v1/runs/attack/run/reports"
GZIP = {"Content-Encoding": "gzip"}


def attacks() -> dict[str, tuple[str, bytes, dict[str, str], int]]:
    """Return the attacks by name: path, body, headers, and how many are sent at once."""
    turns = [report_with_turns(step) for step in range(22)]
    lists = gzip.compress(empty_lists(29 << 20))
    bomb = gzip.compress(bytes(64 << 20), 9)
    members = gzip.compress(b"") * 400_000
    report = wire.encode(messages.report())
    return {
        "turns": (ONE, turns[0], {}, 1),
        "bundle": (REPORTS, wire.encode_bundle(turns), {}, 1),
        "lists": (ONE, lists, GZIP, 4),
        "bombs": (ONE, bomb, GZIP, 40),
        "members": (ONE, gzip.compress(report) + members, GZIP, 4),
        "raws": (
            REPORTS,
            gzip.compress(b"\x81\xa8messages\xdd" + (60 << 20).to_bytes(4, "big") + bytes(60 << 20)),
            GZIP,
            4,
        ),
    }


class Victim:
    """Posts a report and reads the fleet, in turn, until it is stopped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.waits_ms: list[float] = []
        self.failures: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Victim:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        connection, step = Connection(self._url), 0
        content = messages.columns(64)
        launch = f"launch-{time.time()}"
        while not self._stop.is_set():
            step += 1
            body = wire.encode(messages.report(content, launch=launch, attempt=launch, step=step, accepted=b"\xff" * 8))
            for answer in (
                connection.post("/api/v1/runs/math/victim/reports", body, content_type=wire.MSGPACK),
                connection.get("/api/v1/fleet"),
            ):
                self.waits_ms.append(answer.seconds * 1000)
                if answer.status != 200:
                    self.failures[answer.status] += 1
            time.sleep(0.01)
        connection.close()


class Memory:
    """Samples the resident bytes of a process every 10 ms."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/statm")
        self._stop = threading.Event()
        self.first = self.peak = self.last = self._read()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> int:
        return int(self._path.read_text().split()[1]) * 4096

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.last = self._read()
            self.peak = max(self.peak, self.last)


def _attack(
    url: str, path: str, body: bytes, headers: dict[str, str], n: int, ready: Event, answers: SimpleQueue[Counter[str]]
) -> None:
    """Attack from a separate process, whose work does not delay the victim."""
    statuses: Counter[str] = Counter()
    threads = [threading.Thread(target=_send, args=(url, path, body, headers, statuses)) for _ in range(n)]
    ready.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(statuses)


def _send(url: str, path: str, body: bytes, headers: dict[str, str], statuses: Counter[str]) -> None:
    """Send a body again and again, without the pauses that a client makes after 429."""
    address, until = urlsplit(url), time.perf_counter() + ATTACK_SECONDS
    while time.perf_counter() < until:
        connection = HTTPConnection(str(address.hostname), address.port, timeout=300, source_address=ATTACKER)
        try:
            connection.request("POST", path, body, {"Content-Type": wire.MSGPACK, **headers})
            answer = connection.getresponse()
            statuses[f"{answer.status}"] += 1
            answer.read()
        except (OSError, HTTPException) as error:
            statuses[type(error).__name__] += 1
        connection.close()


def attack(service: ServiceProcess, name: str | None, sent: tuple[str, bytes, dict[str, str], int] | None) -> str:
    """Return the line of one attack."""
    spawn = get_context("spawn")
    ready, answers = spawn.Event(), spawn.SimpleQueue()
    attacker = None if sent is None else spawn.Process(target=_attack, args=(service.url, *sent, ready, answers))
    if attacker is not None:
        attacker.start()
        time.sleep(START_SECONDS)
    with Victim(service.url) as victim, Memory(service.process.pid) as memory:
        began = time.perf_counter()
        ready.set()
        if attacker is not None:
            attacker.join()
        else:
            time.sleep(ATTACK_SECONDS)
        seconds = time.perf_counter() - began
    statuses = Counter() if attacker is None else answers.get()
    waits = victim.waits_ms

    def grown(n_bytes: int) -> str:
        return f"{(n_bytes - memory.first) / MIB:.0f}"

    size = "" if sent is None else f"{sent[3]} x {len(sent[1]) / 1000:.1f} kB"
    return (
        f"| {name or 'none'} | {size} | {seconds:.1f} | {np.percentile(waits, 50):.0f} | "
        f"{np.percentile(waits, 99):.0f} | {max(waits):.0f} | {grown(memory.peak)} | {grown(memory.last)} | "
        f"{dict(statuses)} | {dict(victim.failures) or ''} |"
    )


def main() -> None:
    """Print a table of the attacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attack", action="append", help="only this one; may be repeated")
    chosen = parser.parse_args().attack
    print(
        "| attack | sent | seconds | victim ms, median | p99 | longest | RSS MiB, peak | after | answers "
        "| victim's failures |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |")
    for name, sent in {None: None, **attacks()}.items():
        if chosen and name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            service = ServiceProcess(Path(folder))
            try:
                with Victim(service.url):
                    time.sleep(2.0)
                print(attack(service, name, sent), flush=True)
            finally:
                service.stop()


if __name__ == "__main__":
    main()

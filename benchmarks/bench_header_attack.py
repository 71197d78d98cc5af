"""How long a request to `/healthz` waits while another connection sends one header of many MiB, without a token.

PYTHONPATH=. python benchmarks/bench_header_attack.py [--mebibytes 60]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load.connection import Connection
from tests.fixtures.service import ServiceProcess

PIECE = b"x" * (1 << 20)


def main() -> None:
    """Print the waits of a quiet service, and those during the attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=60, help="length of the header, at most 100")
    mebibytes = min(parser.parse_args().mebibytes, 100)
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(Path(folder))
        try:
            print(_row("quiet", _waits(service.url, threading.Timer(1.0, lambda: None))))
            attack = threading.Thread(target=_send_header, args=(service.url, mebibytes))
            print(_row(f"header of {mebibytes} MiB", _waits(service.url, attack)))
        finally:
            service.stop()


def _send_header(url: str, mebibytes: int) -> None:
    address = urlsplit(url)
    began, n_sent = time.perf_counter(), 0
    with socket.create_connection((address.hostname, address.port), timeout=60) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        try:
            for _ in range(mebibytes):
                line.sendall(PIECE)
                n_sent += 1
            line.sendall(b"\r\n\r\n")
            answer = line.recv(64).partition(b"\r\n")[0].decode()
        except OSError as error:
            answer = type(error).__name__
    seconds = time.perf_counter() - began
    print(f"{n_sent} of {mebibytes} MiB sent in {seconds:.2f} s; answer: {answer!r}")


def _waits(url: str, activity: threading.Thread) -> list[float]:
    """Return the time of each request to `/healthz` while a thread runs, in ms."""
    connection = Connection(url)
    activity.start()
    waits = []
    while activity.is_alive() or len(waits) < 100:
        answer = connection.get("/healthz")
        assert answer.status == 200, answer
        waits.append(answer.seconds * 1000)
    connection.close()
    return waits


def _row(name: str, waits_ms: list[float]) -> str:
    return (
        f"{name}: {len(waits_ms)} requests, median {statistics.median(waits_ms):.1f} ms, longest {max(waits_ms):.0f} ms"
    )


if __name__ == "__main__":
    main()

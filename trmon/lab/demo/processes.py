"""The demo's processes: the service and the trainers, started with trmon's own commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self

from trmon.domain.errors import TrmonError
from trmon.fleet.supervisor import ChildProcess
from trmon.lab.grpo.injections import Injection

HEALTHY, ILL, COLLAPSING = "healthy", "ill", "collapsing"


@dataclass(frozen=True, slots=True)
class Training:
    """One trainer to start: its run name, its injection and the number of steps."""

    name: str
    seed: int
    injection: Injection | None
    n_steps: int


def demo_trainings(injection: Injection, *, seed: int, n_steps: int) -> tuple[Training, ...]:
    """Return the healthy training, the one with the injection and, unless it is the same, one whose reward collapses.

    The engines of the last one agree: its learner gets the rewards with the wrong sign.
    """
    cases = {HEALTHY: None, ILL: injection} | ({} if injection is Injection.REWARD else {COLLAPSING: Injection.REWARD})
    return tuple(Training(name, seed=seed, injection=fault, n_steps=n_steps) for name, fault in cases.items())


class Pager:
    """Listens on a free loopback port; `alerts` are the received ones, oldest first, each with its run's name."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self._server.serve_forever, name="demo-pager", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL of the webhook."""
        return f"http://127.0.0.1:{self._server.server_port}/alerts"

    def take(self, message: dict[str, Any]) -> None:
        """Store the alerts of a message."""
        self.alerts += [alert | {"run": alert.get("run", message["run"])["run"]} for alert in message["alerts"]]


def _handler(pager: Pager) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            pager.take(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, to keep the demo's terminal clean."""

    return Handler


USUAL_PORT = 8642
START_SECONDS = 180.0
"""For a busy machine; a service that ends before says so at once."""
STOP_SECONDS = 15.0
URL_MARK = "trmon_url="


class DemoError(TrmonError):
    """A part of the demo failed; the message says where to look."""


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running embedded service, and its address."""

    process: ChildProcess
    url: str


@contextmanager
def run_service(data_dir: Path, *, webhook_url: str) -> Iterator[ServiceProcess]:
    """Run `trmon serve` on its default port, or on a free port if that is taken. Errors: DemoError."""
    log = data_dir / "service.log"
    environment = _environment(TRMON_WEBHOOK_URL=webhook_url, TRMON_WEBHOOK_ALLOW_HOSTS="127.0.0.1")
    command = [*_trmon("serve"), "--port", str(_port()), "--data-dir", str(data_dir)]
    with log.open("w") as log_file, _running(command, environment, out=subprocess.PIPE, err=log_file) as process:
        line = process.read_line(timeout_seconds=START_SECONDS)
        if line is None or not line.startswith(URL_MARK):
            raise DemoError(f"the service did not start; its log is {log}:\n{log.read_text()[-2000:]}")
        yield ServiceProcess(process, url=line.removeprefix(URL_MARK).strip())


@contextmanager
def run_trainer(training: Training, *, url: str, project: str, log: Path) -> Iterator[ChildProcess]:
    """Run `trmon lab`: a trainer in its own process, on one core."""
    command = [
        *_trmon("lab"),
        *("--url", url, "--project", project, "--run", training.name),
        *("--seed", str(training.seed), "--steps", str(training.n_steps)),
        *(("--inject", training.injection.value) if training.injection else ()),
    ]
    environment = _environment(OMP_NUM_THREADS="1", TRMON_SPOOL_DIR=str(log.parent / "spool"))
    with log.open("w") as log_file, _running(command, environment, out=log_file, err=log_file) as process:
        yield process


def _trmon(command: str) -> list[str]:
    return [sys.executable, "-m", "trmon", command]


def _environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with the given variables and no other trmon variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRMON_")} | variables


def _port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


@contextmanager
def _running(
    command: list[str], environment: dict[str, str], *, out: IO[str] | int, err: IO[str]
) -> Iterator[ChildProcess]:
    child = ChildProcess(command, environment=environment, stdout=out, stderr=err)
    child.start()
    try:
        yield child
    finally:
        child.stop(timeout_seconds=STOP_SECONDS)

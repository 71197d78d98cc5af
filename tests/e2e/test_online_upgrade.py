"""An upgrade of a fleet while reports arrive, and the way back: nothing is lost, doubled, refused or repeated."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Self

import httpx
import pytest

from benchmarks.load.alert_check import check_alerts
from benchmarks.load.deployments import UNLIMITED
from benchmarks.load.sending import Pace, Senders
from benchmarks.load.soak import variables_for
from benchmarks.load.verification import wrong_steps
from benchmarks.load.workload import Workload
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.versions import THIS_VERSION, CodeVersion, next_version
from tests.fixtures.waiting import eventually
from trmon.store import Store

pytestmark = [pytest.mark.server("postgres"), pytest.mark.timeout(900)]

WORKLOAD = Workload(n_ranks=2, n_sequences=16, drift_from=10, drift_steps=40)
PER_SECOND = 6.0
PHASE_STEPS = 4
"""So many steps are acknowledged in each phase of the upgrade."""
PHASE_SECONDS = 180.0


class LoadBalancer:
    """Gives each new connection to the next backend that accepts it; `backends`, URLs, may be replaced at any time."""

    def __init__(self) -> None:
        self.backends: list[str] = []
        self._turns = itertools.count()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        # close() alone would leave accept() waiting.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            backend = self._connect()
            if backend is None:
                caller.close()
                continue
            threading.Thread(target=_relay, args=(caller, backend), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        backends, turn = self.backends, next(self._turns)
        for index in range(len(backends)):
            url = httpx.URL(backends[(turn + index) % len(backends)])
            with suppress(OSError):
                return socket.create_connection((url.host, url.port or 80))
        return None


def _relay(caller: socket.socket, backend: socket.socket) -> None:
    with caller, backend:
        answering = threading.Thread(target=_forward, args=(backend, caller), daemon=True)
        answering.start()
        _forward(caller, backend)
        answering.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    """Send on what arrives until one side ends; then end both."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class RollingFleet:
    """One API process and one worker at a time, of changing versions, behind a load balancer."""

    def __init__(self, folder: Path, stack: ExitStack, *, database_url: str, **variables: str) -> None:
        self._folder = folder
        self._stack = stack
        self._database_url = database_url
        self._variables = {"lease_seconds": "3", **UNLIMITED, **variables}
        self.balancer = stack.enter_context(LoadBalancer())
        self.api: ServiceProcess | None = None
        self.worker: WorkerProcess | None = None
        self._n_started = 0

    def migrate(self, version: CodeVersion) -> None:
        ended = version.command("migrate", database_url=self._database_url)
        assert ended.returncode == 0, ended.stderr

    def readiness(self) -> int:
        """Return the status of /readyz of the API process that was started last."""
        assert self.api is not None
        return httpx.get(f"{self.api.url}/readyz", timeout=30.0).status_code

    def replace_worker(self, version: CodeVersion) -> None:
        """Start a worker of a version, and stop the former once they share the runs."""
        self._n_started += 1
        log = self._folder / f"worker-{self._n_started}.log"
        started = WorkerProcess(self._database_url, log=log, environment=version.environment, **self._variables)
        self._stack.enter_context(started)
        if self.worker is not None:
            with closing(Store.open(self._database_url)) as store:
                eventually(lambda: any("2 workers share" in found.detail for found in store.examine()))
            assert self.worker.stop() == 0, self.worker.log.read_text()
        self.worker = started

    def replace_api(self, version: CodeVersion) -> None:
        """Start an API process of a version, give it half of the connections, then all of them."""
        started = ServiceProcess(
            self._folder / "data",
            database_url=self._database_url,
            environment=version.environment,
            **self._variables,
        )
        self._stack.callback(lambda: started.process.poll() is None and started.kill())
        if self.api is None:
            self.balancer.backends = [started.url]
        else:
            self.balancer.backends = [started.url, self.api.url]
            time.sleep(1.0)
            self.balancer.backends = [started.url]
            self.api.stop()
        self.api = started


@contextmanager
def sending(fleet: RollingFleet, pager: WebhookServer) -> Iterator[Senders]:
    """Send a drifting run through the load balancer; in the end verify that all of it is there once."""
    url = fleet.balancer.url
    pace = Pace(seconds=3600.0, per_second=PER_SECOND)
    senders = Senders(lambda: url, WORKLOAD, n_connections=WORKLOAD.n_ranks, pace=pace)
    senders.start()
    try:
        yield senders
    except BaseException:
        senders.abandon()
        raise
    senders.stop()
    sent, _ = senders.wait()
    assert not sent.failures
    assert not wrong_steps(url, WORKLOAD, sent.acknowledged)
    alerts = check_alerts(url, pager, WORKLOAD, sent.acknowledged)
    assert alerts.is_clean, alerts
    assert alerts.n_pages, "no alert fired, so none could be repeated"
    print(
        f"{len(sent.acknowledged)} reports, {sent.refused} refused, {sent.broken} broken connections, "
        f"longest {max(sent.seconds):.2f} s, {alerts.n_events} alert events, {alerts.n_pages} notifications"
    )
    assert not sent.refused


def let_pass(senders: Senders) -> None:
    """Wait until the run is some steps further."""
    wanted = senders.acknowledged + PHASE_STEPS * WORKLOAD.n_ranks
    eventually(lambda: senders.acknowledged >= wanted, timeout_seconds=PHASE_SECONDS)


def test_a_fleet_is_upgraded_and_rolled_back_while_reports_arrive(tmp_path: Path, postgres_server: Postgres) -> None:
    later = next_version(tmp_path / "next")
    with ExitStack() as stack:
        pager = stack.enter_context(WebhookServer())
        fleet = RollingFleet(tmp_path, stack, database_url=postgres_server.database(), **variables_for(pager))
        fleet.migrate(THIS_VERSION)
        fleet.replace_api(THIS_VERSION)
        fleet.replace_worker(THIS_VERSION)
        with sending(fleet, pager) as senders:
            let_pass(senders)
            fleet.migrate(later)
            let_pass(senders)
            eventually(fleet.readiness, (200).__eq__)
            fleet.replace_worker(later)
            let_pass(senders)
            fleet.replace_api(later)
            let_pass(senders)
            fleet.replace_api(THIS_VERSION)
            fleet.replace_worker(THIS_VERSION)
            fleet.migrate(THIS_VERSION)
            eventually(fleet.readiness, (200).__eq__)
            let_pass(senders)

"""Reads how much CPU time and how many bytes the stations of a running deployment have used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from benchmarks.load.deployments import Deployment, SupervisedChild
from benchmarks.load.processes import cpu_seconds, main_thread_seconds, own_cpu_seconds
from tests.fixtures.postgres import Postgres
from trmon.domain.capacity.station import Station


class StationMeter(Protocol):
    """Reads totals that only grow."""

    n_api: int

    def read(self) -> Mapping[Station, float]:
        """Return CPU seconds, or bytes, of each station since its start."""


class EmbeddedMeter:
    """The service and its runner; SQLite works in both."""

    n_api = 1

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._service = deployment.parts["service"].pids()
        self._runner = deployment.parts["runner"].pids()

    def read(self) -> Mapping[Station, float]:
        """Return the totals; SQLite's log is not counted."""
        return {
            Station.API: own_cpu_seconds(self._service),
            Station.EVENT_LOOP: main_thread_seconds(self._service),
            Station.WORKER: own_cpu_seconds(self._runner),
            Station.TABLES: float(self._deployment.stored_bytes()),
        }


class FleetMeter:
    """The API processes, the workers, PostgreSQL with all its backends, and Redis."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        replica, worker, postgres = (deployment.parts[name] for name in ("replica", "worker", "PostgreSQL"))
        assert isinstance(replica, SupervisedChild)
        assert isinstance(worker, SupervisedChild)
        assert isinstance(postgres, Postgres)
        self._replicas, self._workers, self._postgres = replica.all_pids(), worker.all_pids(), postgres
        self.n_api = len(self._replicas)

    def read(self) -> Mapping[Station, float]:
        """Return the totals."""
        [(wal,)] = self._postgres.execute("SELECT pg_current_wal_lsn() - '0/0'")
        return {
            Station.API: own_cpu_seconds(self._replicas),
            Station.EVENT_LOOP: main_thread_seconds(self._replicas),
            Station.WORKER: own_cpu_seconds(self._workers),
            Station.DATABASE: cpu_seconds([self._postgres.process.pid]),
            Station.REDIS: own_cpu_seconds(self._deployment.parts["Redis"].pids()),
            Station.LOG: float(wal),
            Station.TABLES: float(self._deployment.stored_bytes()),
        }

"""The deployments that a soak runs on, each with the faults that it tolerates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.load.deployments import Deployment, data_of, embedded, fleet, sqlite_of
from benchmarks.load.faults import (
    Clock,
    Fault,
    frozen_until_replaced,
    full_disk,
    full_postgres,
    killed,
    locked_sqlite,
    locked_table,
    may_mount,
    moved_away,
    own_clock,
    own_disk,
    read_only_at_start,
    read_only_postgres,
    shut_down,
    slow_inserts,
    slow_sqlite,
    stopped,
)
from tests.fixtures.postgres import Postgres
from tests.fixtures.service import ServiceProcess

LEASE_SECONDS = "3"
BEYOND_A_LEASE, BEYOND_A_TIMEOUT, SLOW = (0.5, 6.0), (1.0, 11.0), (2.0, 6.0)
HOUR, DAY = 3600, 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A deployment, and its faults by name."""

    deployment: Deployment
    faults: Mapping[str, Fault]


@contextmanager
def embedded_target(folder: Path, *, with_clock: bool = False, **variables: str) -> Iterator[Target]:
    """Run `trmon serve` on SQLite, on a separate disk; with a separate clock only its faults are the clock's."""
    if with_clock:
        clock = own_clock(folder / "clock")
        with embedded(folder, environment=clock.environment, **variables) as deployment:
            yield Target(deployment=deployment, faults=_clock_faults(clock))
        return
    with ExitStack() as stack:
        if may_mount():
            stack.enter_context(own_disk(data_of(folder)))
        deployment = stack.enter_context(embedded(folder, **variables))
        service, database = deployment.parts["service"], sqlite_of(folder)
        assert isinstance(service, ServiceProcess)
        faults = _process_faults(deployment) | {
            "database locked": Fault(block=partial(locked_sqlite, database), seconds=BEYOND_A_TIMEOUT),
            "database slow": Fault(block=partial(slow_sqlite, database), seconds=SLOW),
            "database moved away": Fault(block=partial(moved_away, database)),
        }
        if may_mount():
            faults |= {
                "disk full": Fault(block=partial(full_disk, data_of(folder))),
                "disk read-only": Fault(block=partial(read_only_at_start, service, data_of(folder))),
            }
        yield Target(deployment=deployment, faults=faults)


@contextmanager
def fleet_target(folder: Path, *, with_clock: bool = False, **variables: str) -> Iterator[Target]:
    """Run two replicas and two workers on PostgreSQL and Redis; with a separate clock as above."""
    given = {"lease_seconds": LEASE_SECONDS, **variables}
    if with_clock:
        clock = own_clock(folder / "clock")
        with fleet(folder, replicas=2, environment=clock.environment, **given) as deployment:
            yield Target(deployment=deployment, faults=_clock_faults(clock))
        return
    with fleet(folder, replicas=2, **given) as deployment:
        postgres = deployment.parts["PostgreSQL"]
        assert isinstance(postgres, Postgres)
        faults = _process_faults(deployment) | {
            "table locked": Fault(
                block=partial(locked_table, deployment.database_url, "report"), seconds=BEYOND_A_TIMEOUT
            ),
            "slow inserts": Fault(block=partial(slow_inserts, deployment.database_url, "report"), seconds=SLOW),
            "PostgreSQL read-only": Fault(block=partial(read_only_postgres, postgres)),
            "PostgreSQL shut down": Fault(block=partial(shut_down, postgres)),
        }
        if postgres.disk is not None:
            faults |= {"PostgreSQL disk full": Fault(block=partial(full_postgres, postgres, postgres.disk))}
        yield Target(deployment=deployment, faults=faults)


def _process_faults(deployment: Deployment) -> dict[str, Fault]:
    kills = {f"SIGKILL, {name}": Fault(block=partial(killed, part)) for name, part in deployment.parts.items()}
    stops = {
        f"SIGSTOP, {name}": Fault(block=partial(stopped, part), seconds=BEYOND_A_LEASE)
        for name, part in deployment.parts.items()
    }
    frozen = {
        f"SIGSTOP for good, {name}": Fault(block=partial(frozen_until_replaced, part))
        for name, part in deployment.parts.items()
        if name in ("runner", "replica", "worker")
    }
    return kills | stops | frozen


def _clock_faults(clock: Clock) -> dict[str, Fault]:
    shifts = {"an hour ahead": HOUR, "an hour behind": -HOUR, "a day ahead": DAY}
    return {
        f"clock {name}": Fault(block=partial(clock.shifted, seconds), seconds=(2.0, 4.0))
        for name, seconds in shifts.items()
    }

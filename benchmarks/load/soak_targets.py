"""The deployments that a soak runs on, each with the faults that it tolerates."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from secrets import token_hex
from typing import Any

from benchmarks.bench_costly_bodies import REPORTS, attacks
from benchmarks.load.connection import Connection
from benchmarks.load.deployments import Deployment, data_of, embedded, fleet, sqlite_of
from benchmarks.load.faults import (
    Clock,
    Fault,
    attacked,
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
from trmon_client.core import wire

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
        faults = (
            _process_faults(deployment)
            | _attacks(deployment)
            | {
                "database locked": Fault(block=partial(locked_sqlite, database), seconds=BEYOND_A_TIMEOUT),
                "database slow": Fault(block=partial(slow_sqlite, database), seconds=SLOW),
                "database moved away": Fault(block=partial(moved_away, database)),
            }
        )
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
        faults = (
            _process_faults(deployment)
            | _attacks(deployment)
            | {
                "table locked": Fault(
                    block=partial(locked_table, deployment.database_url, "report"), seconds=BEYOND_A_TIMEOUT
                ),
                "slow inserts": Fault(block=partial(slow_inserts, deployment.database_url, "report"), seconds=SLOW),
                "PostgreSQL read-only": Fault(block=partial(read_only_postgres, postgres)),
                "PostgreSQL shut down": Fault(block=partial(shut_down, postgres)),
            }
        )
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


def _attacks(deployment: Deployment) -> dict[str, Fault]:
    """Return what another client may send: each is refused or stored, and delays no other client for long."""
    sent = {
        "costly bodies": _costly_bodies(deployment.url),
        "bare starts": _bare_starts(deployment.url),
        "hostile texts": _hostile_texts(deployment.url),
        "history imported": _imports(deployment.url),
    }
    return {name: Fault(block=partial(attacked, one), seconds=SLOW) for name, one in sent.items()}


def _costly_bodies(url: str) -> Iterator[None]:
    for path, body, headers, _ in cycle(attacks().values()):
        more = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        with closing(Connection(url)) as connection:
            connection.post(path, body, content_type=wire.MSGPACK + more)
        yield


def _bare_starts(url: str) -> Iterator[None]:
    while True:
        _post(url, *(wire.Start(**origin(f"bare-{token_hex(6)}")) for _ in range(20)))
        yield


def _hostile_texts(url: str) -> Iterator[None]:
    for text in cycle(("a\0b", "\x1b[2J", "x" * 60_000, "\u202etxt")):
        run = origin(f"hostile-{token_hex(6)}")
        lost = wire.Losses(dropped={f"{text[:100]}{i}": 1 for i in range(200)})
        _post(url, wire.Start(**run, owner=text[:100], tags=[text[:100]]))
        _post(url, wire.Pause(**run, sequence=1, reason=text))
        _post(url, wire.Finish(**run, sequence=2, outcome="crashed", error=text, traceback=text, losses=lost))
        yield


def _imports(url: str) -> Iterator[None]:
    while True:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, f"log-{token_hex(6)}.jsonl")
            log.write_text("".join(f'{{"step": {i}, "reward": 0.5, "kl": 0.01}}\n' for i in range(2_000)))
            command = [sys.executable, "-m", "trmon", "import", "--url", url, "--project", "history", str(log)]
            subprocess.run(command, capture_output=True, check=False)
        yield


def _post(url: str, *messages: wire.Message) -> None:
    with closing(Connection(url)) as connection:
        bundle = wire.encode_bundle([wire.encode(message) for message in messages])
        connection.post(REPORTS, bundle, content_type=wire.MSGPACK)


def origin(run: str) -> dict[str, Any]:
    """Return the sender of messages of a run that attacks."""
    return {"project": "attack", "run": run, "attempt": "1", "launch": "1", "sent_at": time.time()}


def _clock_faults(clock: Clock) -> dict[str, Fault]:
    shifts = {"an hour ahead": HOUR, "an hour behind": -HOUR, "a day ahead": DAY}
    return {
        f"clock {name}": Fault(block=partial(clock.shifted, seconds), seconds=(2.0, 4.0))
        for name, seconds in shifts.items()
    }

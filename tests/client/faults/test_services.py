"""The tiny trainer and services that fail or hang: training is untouched and nothing is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.faults import hostile_server as hostile
from tests.client.faults.hostile_server import Behaviour, HostileServer
from tests.client.faults.tiny_trainer import N_UPDATES, STEPS, train
from tests.client.server import Peer
from tests.client.trainer import settings, spooled, steps
from tests.fixtures.ports import free_port
from tests.fixtures.waiting import eventually
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.monitor import Monitor

EXIT_SECONDS = 8.0
"""Far above the default of 2 s and below the client's other time limits: no result depends on a busy machine."""

ALL_STEPS = [step for step in range(STEPS) for _ in range(N_UPDATES)]
BUSY = hostile.status(
    "429 Busy", "Retry-After: 3600", "Content-Type: application/problem+json", body=b'{"title":"busy"}'
)
FAILING: dict[str, Behaviour] = {"accepts and hangs up": hostile.hang_up, "is busy for an hour": BUSY}
HANGING: dict[str, Behaviour] = {
    "accepts and never answers": hostile.never_answer,
    "accepts and never reads": hostile.never_read,
    "answers one byte a second": hostile.one_byte_a_second(),
}


@pytest.mark.parametrize(
    "behave",
    [
        *(pytest.param(behave, id=name) for name, behave in FAILING.items()),
        *(pytest.param(behave, id=name, marks=pytest.mark.slow) for name, behave in HANGING.items()),
    ],
)
def test_training_and_its_end_are_untouched_and_all_is_kept(tmp_path: Path, untouched: str, behave: Behaviour) -> None:
    with HostileServer(behave) as server:
        with Monitor(replace(settings(tmp_path, url=server.url), limits=Limits())) as monitor:
            assert train(monitor) == untouched
            ends_at = time.monotonic()
        assert time.monotonic() - ends_at < EXIT_SECONDS
        # After a hanging upload, the last half second is for the spool: on a stalled disk it is written later.
        eventually(lambda: steps(spooled(tmp_path)), ALL_STEPS.__eq__)
        assert server.n_connections


HOUR_SECONDS = 3600.0
TRIES_IN_AN_HOUR = int(HOUR_SECONDS / Limits().retry_cap_seconds)


def test_as_many_failures_as_in_an_hour_leave_the_spool_complete(tmp_path: Path, untouched: str) -> None:
    port, limits = free_port(), {"retry_first_seconds": 0.001, "retry_cap_seconds": 0.002}
    with Monitor(settings(tmp_path, url=f"http://127.0.0.1:{port}", limits=limits)) as monitor:
        with HostileServer(hostile.hang_up, port=port) as server:
            assert train(monitor) == untouched
            eventually(lambda: server.n_connections, lambda n: n >= TRIES_IN_AN_HOUR)
        with Peer(port=port) as peer:
            monitor.close(timeout=None)
    assert peer.steps == ALL_STEPS
    assert peer.of(wire.Finish)[0].losses.dropped == {}

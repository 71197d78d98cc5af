"""100,000 calls in a tight loop while the service is away: bounded memory and disk, and losses told when it returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.faults.conftest import EXIT_SECONDS, RunTrainer
from tests.client.server import Peer
from tests.client.trainer import settings
from tests.fixtures.ports import free_port
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.monitor import Monitor

pytestmark = pytest.mark.slow

CALLS = 100_000
BATCHES = 5_000
"""So many of the calls report a batch; the others report scalars, which cost a tenth."""

SPOOL_BYTES = 2 << 20
SEGMENT_BYTES = 1 << 18
MESSAGE_BYTES = 200
"""Fewer than any message has."""
GROWTH_BYTES = 24 << 20
"""More than the queue and the retry buffer hold; 256 bytes for each call, or 5 KiB for each batch, would exceed it."""

TIGHT_LOOP = """
from dataclasses import replace
from pathlib import Path
from tests.client.trainer import batch

CALLS, BATCHES = int(os.environ["CALLS"]), int(os.environ["BATCHES"])

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def log(steps):
    for step in steps:
        if step % (CALLS // BATCHES):
            monitor.log_scalars(step, {"loss": 1.0})
        else:
            decision = monitor.log_batch(step=step, **arguments)
            assert decision.verdict is not None

monitor, arguments = trmon.init(), batch()
sizes = {"spool_bytes": int(os.environ["SPOOL_BYTES"]), "segment_bytes": int(os.environ["SEGMENT_BYTES"])}
monitor = trmon.Monitor(replace(monitor.settings, limits=replace(monitor.settings.limits, **sizes)))
log(range(CALLS // 20))
before = resident_bytes()
log(range(CALLS // 20, CALLS))
tell(grown=resident_bytes() - before, ends_at=time.time())
"""


def test_memory_disk_and_exit_keep_their_limits_and_losses_are_told_when_the_service_returns(
    tmp_path: Path, run_trainer: RunTrainer
) -> None:
    counts = {"CALLS": CALLS, "BATCHES": BATCHES, "SPOOL_BYTES": SPOOL_BYTES, "SEGMENT_BYTES": SEGMENT_BYTES}
    variables = {name: str(count) for name, count in counts.items()}
    done = run_trainer(TIGHT_LOOP, url=f"http://127.0.0.1:{free_port()}", **variables)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.told["grown"]) < GROWTH_BYTES
    assert done.exit_seconds < EXIT_SECONDS
    segments = [path.stat().st_size for path in tmp_path.rglob("*.seg")]
    assert sum(segments) <= SPOOL_BYTES

    with Peer() as peer, Monitor(replace(settings(tmp_path, url=peer.url), limits=Limits())) as monitor:
        monitor.pause()
        (finish,) = peer.wait_for(wire.Finish)
        received = [message for message in peer.messages if message.launch == finish.launch]
    n_lost = sum(finish.losses.dropped.values())
    keys = [(type(message), getattr(message, "step", None)) for message in received]
    assert len(set(keys)) == len(keys)
    assert set(finish.losses.dropped) <= {"queue_full", "spool_full"}
    # The last message may push out the oldest segment, whose loss no message can tell.
    n_untold = len(["start"]) + CALLS + len(["finish"]) - len(received) - n_lost
    assert 0 <= n_untold <= SEGMENT_BYTES // MESSAGE_BYTES

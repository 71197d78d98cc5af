"""A trainer's process, while no service helps: how it ends, forks, spawns, and logs 100,000 times in a tight loop."""

from __future__ import annotations

import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from textwrap import dedent

import pytest

from tests.client.faults.conftest import EXIT_SECONDS, RunTrainer
from tests.client.faults.hostile_server import HostileServer, never_answer
from tests.client.faults.tiny_trainer import N_UPDATES, STEPS
from tests.client.process.test_exit_hooks import IN_A_NATIVE_CALL
from tests.client.server import Peer
from tests.client.trainer import settings, spooled, steps
from tests.fixtures.ports import free_port
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.monitor import Monitor

pytestmark = pytest.mark.slow

ALL_STEPS = [step for step in range(STEPS) for _ in range(N_UPDATES)]
TRAIN = """
monitor = trmon.init()
tell(digest=train(monitor))
tell(ends_at=time.time())
"""
ENDS = {
    "KeyboardInterrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "SIGTERM in a native call": (dedent(IN_A_NATIVE_CALL), -signal.SIGTERM),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS.keys())
def test_a_process_ends_as_without_trmon_and_spools(
    tmp_path: Path, untouched: str, run_trainer: RunTrainer, end: str, code: int
) -> None:
    with HostileServer(never_answer) as server:
        done = run_trainer(TRAIN + end, url=server.url)
    done.assert_untouched(untouched, code=code)
    assert steps(spooled(tmp_path)) == ALL_STEPS


def work(monitor: Monitor) -> None:
    """Log as a spawned process."""
    monitor.log_scalars(1, {"child": 1.0})


def test_a_spawned_process_that_gets_the_monitor_reports_on_its_own(tmp_path: Path) -> None:
    with Peer() as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url, token="s3cret"))
        monitor.log_scalars(0, {"parent": 1.0})
        child = get_context("spawn").Process(target=work, args=(monitor,))
        child.start()
        child.join()
        monitor.close(timeout=None)
        assert child.exitcode == 0
        parent, spawned = sorted(peer.of(wire.Scalars), key=lambda message: message.step)
        assert {request.headers["Authorization"] for request in peer.requests} == {"Bearer s3cret"}
    assert spawned.values == {"child": 1.0}
    assert spawned.launch != parent.launch


def test_calls_while_the_interpreter_shuts_down_raise_nothing(untouched: str, run_trainer: RunTrainer) -> None:
    script = """
    import atexit

    class Late:
        def __del__(self):
            monitor.log_scalars(STEP, {"late": 1.0})
            other.log_scalars(STEP, {"late": 1.0})

    STEP = 99
    late = Late()
    other = trmon.init(run="other")
    monitor = trmon.init()
    atexit.register(lambda: (monitor.log_scalars(STEP, {"late": 1.0}), other.log_scalars(STEP, {"late": 1.0})))
    tell(digest=train(monitor))
    without_end = lambda: [(monitor.log_scalars(STEP, {"late": 1.0}), time.sleep(1e-3)) for _ in iter(int, 1)]
    threading.Thread(target=without_end, daemon=True).start()
    tell(ends_at=time.time())
    """
    done = run_trainer(script, url=f"http://127.0.0.1:{free_port()}")
    done.assert_untouched(untouched)


def test_eight_monitors_share_the_exit_time(tmp_path: Path, untouched: str, run_trainer: RunTrainer) -> None:
    script = """
    monitors = [trmon.init(run=f"run-{index}") for index in range(8)]
    tell(digest=train(*monitors))
    tell(ends_at=time.time())
    """
    with HostileServer(never_answer) as server:
        done = run_trainer(script, url=server.url)
    done.assert_untouched(untouched)
    assert sorted(steps(spooled(tmp_path))) == sorted(8 * ALL_STEPS)


def test_a_stuck_call_in_a_thread_ends_with_the_process(
    tmp_path: Path, untouched: str, run_trainer: RunTrainer
) -> None:
    script = """
    class Stuck:
        def __float__(self):
            time.sleep(100)

    monitor = trmon.init()
    tell(digest=train(monitor))
    call = {"rollout_logprobs": np.zeros((1, 1)), "logprobs": np.zeros((1, 1)), "mask": np.ones((1, 1))}
    stuck = {"step": 99, "scalars": {"stuck": Stuck()}}
    threading.Thread(target=lambda: monitor.log_batch(**call, **stuck), daemon=True).start()
    time.sleep(0.5)
    tell(ends_at=time.time())
    """
    done = run_trainer(script)
    done.assert_untouched(untouched)
    assert steps(spooled(tmp_path)) == ALL_STEPS


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


def test_memory_disk_and_exit_keep_their_limits_and_losses_are_told(tmp_path: Path, run_trainer: RunTrainer) -> None:
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

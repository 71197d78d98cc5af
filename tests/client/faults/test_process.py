"""A trainer's process: how it ends, forks, spawns and shares monitors, while no service helps."""

from __future__ import annotations

import signal
from multiprocessing import get_context
from pathlib import Path
from textwrap import dedent

import pytest

from tests.client.faults.conftest import RunTrainer
from tests.client.faults.hostile_server import HostileServer, never_answer
from tests.client.faults.process_trainer import N_UPDATES, STEPS
from tests.client.process.test_exit_hooks import IN_A_NATIVE_CALL
from tests.client.server import Peer
from tests.client.trainer import settings, spooled, steps
from tests.fixtures.ports import free_port
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
    "the end of the script": ("", 0),
    "an exception": ("raise RuntimeError('loss is NaN')", 1),
    "KeyboardInterrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "SIGTERM in a native call": (dedent(IN_A_NATIVE_CALL), -signal.SIGTERM),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS.keys())
def test_a_process_ends_as_without_trmon_and_spools_what_a_hanging_service_holds(
    tmp_path: Path, untouched_process: str, run_trainer: RunTrainer, end: str, code: int
) -> None:
    with HostileServer(never_answer) as server:
        done = run_trainer(TRAIN + end, url=server.url)
    done.assert_untouched(untouched_process, code=code)
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


def test_calls_while_the_interpreter_shuts_down_raise_nothing(untouched_process: str, run_trainer: RunTrainer) -> None:
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
    done.assert_untouched(untouched_process)


def test_eight_monitors_share_the_time_of_the_exit(
    tmp_path: Path, untouched_process: str, run_trainer: RunTrainer
) -> None:
    script = """
    monitors = [trmon.init(run=f"run-{index}") for index in range(8)]
    tell(digest=train(*monitors))
    tell(ends_at=time.time())
    """
    with HostileServer(never_answer) as server:
        done = run_trainer(script, url=server.url)
    done.assert_untouched(untouched_process)
    assert sorted(steps(spooled(tmp_path))) == sorted(8 * ALL_STEPS)


def test_a_call_that_never_returns_in_another_thread_does_not_keep_the_process(
    tmp_path: Path, untouched_process: str, run_trainer: RunTrainer
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
    done.assert_untouched(untouched_process)
    assert steps(spooled(tmp_path)) == ALL_STEPS

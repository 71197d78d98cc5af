"""How a trainer's process ends, with real processes and a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.client.server import HANG, Peer
from tests.client.trainer import spooled, steps
from trmon_client.core import wire

TRAINER = """
    import os, signal, sys, threading
    import numpy as np
    import trmon_client as trmon

    mu = np.full((2, 3), -1.0)

    def log(monitor, step):
        monitor.log_batch(step=step, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((2, 3)))

    monitor = trmon.init(project="math", run="grpo")
    log(monitor, 0)
"""


def run(tmp_path: Path, end: str, *, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run a trainer that logs one step and then does `end`."""
    environment = {**os.environ, "TRMON_URL": url, "TRMON_SPOOL_DIR": str(tmp_path / "spool")}
    script = textwrap.dedent(TRAINER) + textwrap.dedent(end)
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_uncaught_exception_is_a_crash_and_still_prints(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, "raise RuntimeError('loss is NaN')", url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.outcome, finish.error) == ("crashed", "RuntimeError: loss is NaN")
    assert finish.finished == [wire.ChunkCount(0, None, 1)]
    assert "RuntimeError: loss is NaN" in done.stderr
    assert done.returncode == 1


def test_an_end_without_close_sends_queued_messages_and_no_finish(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, "", url=peer.url)
        assert (peer.steps, peer.of(wire.Finish)) == ([0], [])
    assert done.returncode == 0
    assert spooled(tmp_path) == []


def test_an_end_without_close_spools_what_a_hanging_service_did_not_acknowledge(tmp_path: Path) -> None:
    with Peer(otherwise=HANG) as peer:
        done = run(tmp_path, "", url=peer.url)
    assert done.returncode == 0
    assert steps(spooled(tmp_path)) == [0]


SPOOLED = """
    import time
    from pathlib import Path
    from trmon_client.core.wire.segments import scan_segment
    spool = Path(os.environ["TRMON_SPOOL_DIR"])
    while sum(len(scan_segment(path.read_bytes()).messages) for path in spool.rglob("*.seg")) < 2:
        time.sleep(0.01)
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def test_a_kill_leaves_what_was_spooled_and_the_next_process_sends_it(tmp_path: Path) -> None:
    done = run(tmp_path, textwrap.dedent(SPOOLED) + DIE)
    assert done.returncode == -signal.SIGKILL
    assert steps(spooled(tmp_path)) == [0]
    with Peer() as peer:
        run(tmp_path, "monitor.close()", url=peer.url)
        assert peer.steps == [0, 0]
        assert len({report.launch for report in peer.of(wire.Report)}) == 2
    assert spooled(tmp_path) == []


def test_a_forked_child_that_outlives_its_parent_does_not_lock_the_spool(tmp_path: Path) -> None:
    fork = """
        child = os.fork()
        if child == 0:
            os.closerange(0, 3)
            time.sleep(120)
            os._exit(0)
        print(child, flush=True)
    """
    done = run(tmp_path, textwrap.dedent(SPOOLED) + textwrap.dedent(fork) + DIE)
    try:
        with Peer() as peer:
            run(tmp_path, "monitor.close()", url=peer.url)
            assert peer.steps == [0, 0]
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_a_forked_child_reports_on_its_own_and_cannot_end_its_parents_run(tmp_path: Path) -> None:
    fork = """
        def in_child(work):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                except SystemExit:
                    os._exit(7)
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        def speak():
            log(monitor, 1)
            monitor.close()

        def silent():
            with monitor:
                sys.exit(0)

        assert in_child(speak) == 0
        assert in_child(silent) == 7
        assert in_child(monitor.close) == 0
        log(monitor, 2)
        monitor.close()
    """
    with Peer() as peer:
        done = run(tmp_path, fork, url=peer.url)
        assert done.returncode == 0, done.stderr
        by_step = {report.step: report for report in peer.of(wire.Report)}
        finishes = peer.of(wire.Finish)
    assert sorted(by_step) == [0, 1, 2]
    assert by_step[0].launch == by_step[2].launch != by_step[1].launch
    assert sorted(finish.launch for finish in finishes) == sorted({report.launch for report in by_step.values()})


def test_a_signal_handler_may_close_in_the_middle_of_a_call(tmp_path: Path) -> None:
    interrupt = """
        class Interrupting(dict):
            def items(self):
                signal.raise_signal(signal.SIGTERM)
                return super().items()

        signal.signal(signal.SIGTERM, lambda *_: monitor.close())
        monitor.log_batch(step=1, rollout_logprobs=mu, logprobs=mu, mask=np.ones((2, 3)), scalars=Interrupting(lr=1.0))
    """
    done = run(tmp_path, interrupt)
    assert done.returncode == 0, done.stderr
    assert isinstance(spooled(tmp_path)[-1], wire.Finish)


def test_a_child_of_multiprocessing_that_ends_without_close_sends_queued_messages(tmp_path: Path) -> None:
    fork = """
        import multiprocessing

        def speak():
            for step in range(1, 30):
                log(monitor, step)

        child = multiprocessing.get_context("fork").Process(target=speak)
        child.start()
        child.join()
    """
    with Peer() as peer:
        run(tmp_path, fork, url=peer.url)
        assert sorted(peer.steps) == list(range(30))

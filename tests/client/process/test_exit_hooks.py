"""How a trainer's process ends, with real processes and a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.client.server import HANG, Peer
from tests.client.trainer import spooled, steps
from trmon_client.core import wire
from trmon_client.process.exit_hooks import BLOCKED_SECONDS

TRAINER = """
    import os, signal, sys, threading
    import numpy as np
    import tests.client.patient_exit
    import trmon_client as trmon

    mu = np.full((2, 3), -1.0)

    def log(monitor, step):
        monitor.log_batch(step=step, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((2, 3)))

    monitor = trmon.init(project="math", run="grpo")
    log(monitor, 0)
"""


def run(
    tmp_path: Path, end: str, *, url: str = "", before: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a trainer that does `before`, logs one step and then does `end`."""
    environment = {**os.environ, "TRMON_URL": url, "TRMON_SPOOL_DIR": str(tmp_path / "spool"), **variables}
    script = before + textwrap.dedent(TRAINER) + textwrap.dedent(end)
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_uncaught_exception_is_a_crash_and_still_prints(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, "raise RuntimeError('loss is NaN')", url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.outcome, finish.reason, finish.error) == ("crashed", "exception", "RuntimeError: loss is NaN")
    assert finish.finished == [], "nobody knows whether the last update was complete"
    assert "RuntimeError: loss is NaN" in done.stderr
    assert done.returncode == 1


def test_a_crash_carries_the_innermost_frames_without_secrets(tmp_path: Path) -> None:
    script = """
        def connect(url):
            raise OSError(f"cannot reach {url} with token=abcdef123456 and n_tokens=512")

        connect("https://me:hunter2@example.com/data")
    """
    with Peer() as peer:
        run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert finish.error == "OSError: cannot reach https://***@example.com/data with token=*** and n_tokens=512"
    assert "in connect" in finish.traceback
    assert "hunter2" not in finish.traceback


NORMAL_ENDS = {"the end of the script": "", "sys.exit()": "sys.exit()", "sys.exit(0)": "sys.exit(0)"}


@pytest.mark.parametrize("end", NORMAL_ENDS.values(), ids=NORMAL_ENDS.keys())
def test_a_normal_end_without_close_is_a_finish(tmp_path: Path, end: str) -> None:
    with Peer() as peer:
        done = run(tmp_path, end, url=peer.url)
        (finish,) = peer.of(wire.Finish)
        assert peer.steps == [0]
    assert (finish.outcome, finish.reason, finish.error) == ("finished", "exited", "")
    assert finish.finished == [wire.ChunkCount(0, None, 1)]
    assert done.returncode == 0
    assert spooled(tmp_path) == []


def test_close_is_told_from_an_end_without_it(tmp_path: Path) -> None:
    with Peer() as peer:
        run(tmp_path, "monitor.close()", url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.outcome, finish.reason) == ("finished", "closed")


EXITS = {
    "a code": ("sys.exit(3)", 3, "exit code 3", 3),
    "a text": ("sys.exit('no data left')", 1, "exit code 1: no data left", 1),
}


@pytest.mark.parametrize(("end", "code", "error", "told"), EXITS.values(), ids=EXITS.keys())
def test_an_exit_with_a_code_is_a_crash_that_tells_it(
    tmp_path: Path, end: str, code: int, error: str, told: int
) -> None:
    with Peer() as peer:
        done = run(tmp_path, end, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert done.returncode == code
    assert (finish.outcome, finish.reason, finish.error, finish.exit_code) == ("crashed", "exit_code", error, told)


def test_an_exit_that_the_trainer_caught_does_not_count(tmp_path: Path) -> None:
    script = """
        try:
            sys.exit(2)
        except SystemExit:
            log(monitor, 1)
    """
    with Peer() as peer:
        run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.outcome, finish.reason) == ("finished", "exited")


def test_an_exit_in_another_thread_ends_that_thread_only(tmp_path: Path) -> None:
    script = """
        thread = threading.Thread(target=lambda: sys.exit(4))
        thread.start()
        thread.join()
    """
    with Peer() as peer:
        run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert finish.outcome == "finished"


def test_an_exception_that_another_hook_swallows_is_still_a_crash(tmp_path: Path) -> None:
    script = """
        sys.excepthook = lambda *_: print("swallowed")
        raise RuntimeError("loss is NaN")
    """
    with Peer() as peer:
        done = run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert "swallowed" in done.stdout
    assert (finish.outcome, finish.error) == ("crashed", "RuntimeError: loss is NaN")


def test_a_failure_under_an_interactive_interpreter_ends_nothing(tmp_path: Path) -> None:
    script = """
        sys.ps1 = ">>> "
        try:
            1 / 0
        except ZeroDivisionError:
            sys.excepthook(*sys.exc_info())
        log(monitor, 1)
    """
    with Peer() as peer:
        run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
        assert peer.steps == [0, 1]
    assert finish.outcome == "finished"


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


def test_a_handler_that_the_trainer_sets_later_has_all_the_time_it_needs(tmp_path: Path) -> None:
    checkpoint = f"""
        import time

        def save_and_exit(*_):
            time.sleep({BLOCKED_SECONDS} + 1.0)
            sys.exit(0)

        signal.signal(signal.SIGTERM, save_and_exit)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """
    done = run(tmp_path, checkpoint)
    assert done.returncode == 0, done.stderr


TERMINATE = "os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(60)"


def test_sigterm_is_told_and_the_process_still_dies_by_it(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, TERMINATE, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.outcome, finish.reason, finish.signal) == ("finished", "signal", "SIGTERM")
    assert finish.finished == [], "nobody knows whether the last update was complete"
    assert done.returncode == -signal.SIGTERM


def test_sigterm_is_told_while_the_main_thread_waits_in_a_native_call(tmp_path: Path) -> None:
    # The signal is blocked in the main thread, so that another thread takes it and the native call goes on.
    script = """
        import ctypes
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        ctypes.CDLL(None).poll(None, 0, 60_000)
    """
    with Peer() as peer:
        done = run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
    assert (finish.reason, finish.signal) == ("signal", "SIGTERM")
    assert done.returncode == -signal.SIGTERM


def test_signals_may_be_turned_off(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, TERMINATE, url=peer.url, TRMON_SIGNALS="0")
        assert peer.of(wire.Finish) == []
    assert done.returncode == -signal.SIGTERM


def test_a_handler_of_the_trainer_is_left_alone(tmp_path: Path) -> None:
    before = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True))\n"
    script = "signal.raise_signal(signal.SIGTERM)\nsys.exit(5)"
    with Peer() as peer:
        done = run(tmp_path, script, url=peer.url, before=before)
        (finish,) = peer.of(wire.Finish)
    assert done.stdout == "mine\n"
    assert (finish.reason, finish.exit_code) == ("exit_code", 5)


def test_ranks_other_than_the_first_keep_the_default_action(tmp_path: Path) -> None:
    with Peer() as peer:
        done = run(tmp_path, TERMINATE, url=peer.url, TRMON_RANK="1", TRMON_WORLD_SIZE="2")
        assert peer.of(wire.Finish) == []
    assert done.returncode == -signal.SIGTERM


def test_a_forked_child_dies_by_sigterm_and_its_parents_run_goes_on(tmp_path: Path) -> None:
    script = """
        import multiprocessing, time
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join()
        print(child.exitcode, flush=True)
        log(monitor, 1)
        time.sleep(0.2)
    """
    with Peer() as peer:
        done = run(tmp_path, script, url=peer.url)
        (finish,) = peer.of(wire.Finish)
        assert peer.steps == [0, 1]
    assert done.stdout == f"{-signal.SIGTERM}\n"
    assert finish.reason == "exited"


def test_a_child_of_multiprocessing_that_fails_is_a_crash(tmp_path: Path) -> None:
    fork = """
        import multiprocessing

        def speak():
            log(monitor, 1)
            raise RuntimeError("loss is NaN")

        child = multiprocessing.get_context("fork").Process(target=speak)
        child.start()
        child.join()
        monitor.close()
    """
    with Peer() as peer:
        run(tmp_path, fork, url=peer.url)
        ends = sorted((finish.outcome, finish.error) for finish in peer.of(wire.Finish))
    assert ends == [("crashed", "RuntimeError: loss is NaN"), ("finished", "")]


def test_an_exit_of_the_process_itself_and_a_kill_are_silent(tmp_path: Path) -> None:
    with Peer() as peer:
        run(tmp_path, "os._exit(0)", url=peer.url)
        run(tmp_path, DIE, url=peer.url)
        assert peer.of(wire.Finish) == []


def test_an_announced_number_of_chunks_travels_with_each_of_them(tmp_path: Path) -> None:
    script = """
        monitor.log_batch(step=1, rollout_logprobs=mu, logprobs=mu, mask=np.ones((2, 3)), chunks=3)
        raise RuntimeError("out of memory")
    """
    with Peer() as peer:
        run(tmp_path, script, url=peer.url)
        reports, (finish,) = peer.of(wire.Report), peer.of(wire.Finish)
    assert [report.chunks for report in reports] == [None, 3]
    assert finish.finished == []


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

"""How a trainer's process ends, with real processes and a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.client.server import Peer
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


def finished(
    tmp_path: Path, end: str, *, before: str = "", **variables: str
) -> tuple[subprocess.CompletedProcess[str], wire.Finish, list[int]]:
    """Run a trainer against a service; return its process, its only finish, and the steps that arrived."""
    with Peer() as peer:
        done = run(tmp_path, end, url=peer.url, before=before, **variables)
        (finish,) = peer.of(wire.Finish)
        return done, finish, peer.steps


CAUGHT = """
    try:
        sys.exit(2)
    except SystemExit:
        log(monitor, 1)
"""
OF_ANOTHER_THREAD = """
    thread = threading.Thread(target=lambda: sys.exit(4))
    thread.start()
    thread.join()
"""
INTERACTIVE = """
    sys.ps1 = ">>> "
    try:
        1 / 0
    except ZeroDivisionError:
        sys.excepthook(*sys.exc_info())
    log(monitor, 1)
"""
SWALLOWED = """
    sys.excepthook = lambda *_: print("swallowed")
    raise RuntimeError("loss is NaN")
"""
# The signal is blocked in the main thread, so that another thread takes it and the native call continues.
IN_A_NATIVE_CALL = """
    import ctypes
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).poll(None, 0, 60_000)
"""
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(60)"
NAN = "RuntimeError: loss is NaN"

ENDS = {
    "close": ("monitor.close()", 0, "closed", ""),
    "the end of the script": ("", 0, "exited", ""),
    "an exit that reports success": ("sys.exit(0)", 0, "exited", ""),
    "an exit that the trainer caught": (CAUGHT, 0, "exited", ""),
    "an exit in another thread": (OF_ANOTHER_THREAD, 0, "exited", ""),
    "a failure under an interactive interpreter": (INTERACTIVE, 0, "exited", ""),
    "an exit with a code": ("sys.exit(3)", 3, "exit_code", "exit code 3"),
    "an exit with a text": ("sys.exit('no data left')", 1, "exit_code", "exit code 1: no data left"),
    "an exception": ("raise RuntimeError('loss is NaN')", 1, "exception", NAN),
    "an exception that another hook swallows": (SWALLOWED, 1, "exception", NAN),
    "SIGTERM": (TERMINATE, -signal.SIGTERM, "signal", ""),
    "SIGTERM while the main thread waits in a native call": (IN_A_NATIVE_CALL, -signal.SIGTERM, "signal", ""),
}


@pytest.mark.parametrize(("end", "code", "reason", "error"), ENDS.values(), ids=ENDS.keys())
def test_an_end_is_told_and_is_as_without_trmon(tmp_path: Path, end: str, code: int, reason: str, error: str) -> None:
    done, finish, steps_told = finished(tmp_path, end)
    assert done.returncode == code
    assert (finish.outcome, finish.reason, finish.error) == ("crashed" if error else "finished", reason, error)
    assert finish.exit_code == (code if reason == "exit_code" else None)
    assert finish.signal == ("SIGTERM" if reason == "signal" else "")
    # After a failure or a signal it is unknown whether the last update was complete.
    is_orderly = reason in ("closed", "exited")
    assert finish.finished == ([wire.ChunkCount(steps_told[-1], None, 1)] if is_orderly else [])
    assert steps_told == ([0, 1] if "log(monitor, 1)" in end else [0])
    assert "swallowed" in done.stdout if end is SWALLOWED else (error in done.stderr or reason == "exit_code")
    assert spooled(tmp_path) == []


def test_a_crash_carries_the_innermost_frames_without_secrets(tmp_path: Path) -> None:
    script = """
        def connect(url):
            raise OSError(f"cannot reach {url} with token=abcdef123456 and n_tokens=512")

        connect("https://me:hunter2@example.com/data")
    """
    _, finish, _ = finished(tmp_path, script)
    assert finish.error == "OSError: cannot reach https://***@example.com/data with token=*** and n_tokens=512"
    assert "in connect" in finish.traceback
    assert "hunter2" not in finish.traceback


SPOOLED = """
    import time
    from pathlib import Path
    from trmon_client.core.wire.segments import scan_segment
    spool = Path(os.environ["TRMON_SPOOL_DIR"])
    while sum(len(scan_segment(path.read_bytes()).messages) for path in spool.rglob("*.seg")) < 2:
        time.sleep(0.01)
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


FORK = """
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        time.sleep(120)
        os._exit(0)
    print(child, flush=True)
"""


@pytest.mark.parametrize("fork", ["", FORK], ids=["alone", "with a forked child that outlives it"])
def test_a_kill_leaves_what_was_spooled_and_the_next_process_sends_it(tmp_path: Path, fork: str) -> None:
    done = run(tmp_path, textwrap.dedent(SPOOLED) + textwrap.dedent(fork) + DIE)
    try:
        assert done.returncode == -signal.SIGKILL
        assert steps(spooled(tmp_path)) == [0]
        with Peer() as peer:
            run(tmp_path, "monitor.close()", url=peer.url)
            assert peer.steps == [0, 0]
            assert len({report.launch for report in peer.of(wire.Report)}) == 2
        assert spooled(tmp_path) == []
    finally:
        for child in done.stdout.split():
            os.kill(int(child), signal.SIGKILL)


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


def test_a_handler_of_the_trainer_is_left_alone(tmp_path: Path) -> None:
    before = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True))\n"
    done, finish, _ = finished(tmp_path, "signal.raise_signal(signal.SIGTERM)\nsys.exit(5)", before=before)
    assert done.stdout == "mine\n"
    assert (finish.reason, finish.exit_code) == ("exit_code", 5)


@pytest.mark.parametrize(
    "variables", [{"TRMON_SIGNALS": "0"}, {"TRMON_RANK": "1", "TRMON_WORLD_SIZE": "2"}], ids=["turned off", "rank 1"]
)
def test_without_a_handler_sigterm_ends_the_process_untold(tmp_path: Path, variables: dict[str, str]) -> None:
    with Peer() as peer:
        done = run(tmp_path, TERMINATE, url=peer.url, **variables)
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
    done, finish, steps_told = finished(tmp_path, script)
    assert steps_told == [0, 1]
    assert done.stdout == f"{-signal.SIGTERM}\n"
    assert finish.reason == "exited"


CHILD = """
    import multiprocessing

    def speak():
        for step in range(1, 30):
            log(monitor, step)
        {end}

    child = multiprocessing.get_context("fork").Process(target=speak)
    child.start()
    child.join()
"""


@pytest.mark.parametrize(
    ("end", "outcome", "error"), [("raise RuntimeError('loss is NaN')", "crashed", NAN), ("return", "finished", "")]
)
def test_a_child_of_multiprocessing_sends_all_and_its_end(tmp_path: Path, end: str, outcome: str, error: str) -> None:
    with Peer() as peer:
        run(tmp_path, CHILD.format(end=end), url=peer.url)
        ends = sorted((finish.outcome, finish.error) for finish in peer.of(wire.Finish))
        assert ends == [(outcome, error), ("finished", "")]
        assert sorted(peer.steps) == list(range(30))


def test_an_exit_of_the_process_itself_is_silent(tmp_path: Path) -> None:
    with Peer() as peer:
        run(tmp_path, "os._exit(0)", url=peer.url)
        assert peer.of(wire.Finish) == []

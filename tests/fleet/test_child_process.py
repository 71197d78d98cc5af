"""ChildProcess: the ready line, the end of a process, and the pause before a restart."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from trmon.fleet.supervisor import RESTART_SECONDS, ChildProcess

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('trmon_ready', flush=True)
time.sleep(60)
"""


def child_of(code: str) -> ChildProcess:
    """Return a started Python process with a piped stdout."""
    child = ChildProcess([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.start()
    return child


def test_the_first_line_is_read_once_it_is_printed() -> None:
    child = child_of("import time; time.sleep(0.3); print('trmon_url=x', flush=True); time.sleep(60)")
    assert child.read_line(timeout_seconds=30.0) == "trmon_url=x\n"
    assert child.status is None
    child.stop()
    assert child.status == -signal.SIGTERM


def test_a_process_that_ends_without_a_line_gives_an_empty_one() -> None:
    child = child_of("raise SystemExit(3)")
    assert child.read_line(timeout_seconds=30.0) == ""
    assert child.wait() == 3
    child.stop()


def test_no_line_is_read_after_the_timeout_or_once_it_is_not_wanted() -> None:
    child = child_of("import time; time.sleep(60)")
    assert child.read_line(timeout_seconds=0.0) is None
    assert child.read_line(timeout_seconds=30.0, is_wanted=lambda: False) is None
    child.stop()


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    child = child_of(IGNORES_SIGTERM)
    assert child.read_line(timeout_seconds=30.0) == "trmon_ready\n"
    child.stop(timeout_seconds=0.2)
    assert child.status == -signal.SIGKILL


def test_a_restart_waits_for_a_second_after_the_start() -> None:
    child = ChildProcess([sys.executable, "-c", ""])
    assert child.restart_in_seconds == 0.0
    child.started_at = time.monotonic() - RESTART_SECONDS / 2
    assert 0.0 < child.restart_in_seconds <= RESTART_SECONDS / 2
    child.started_at = time.monotonic() - RESTART_SECONDS
    assert child.restart_in_seconds <= 0.0


def test_a_successor_has_the_command_but_no_process() -> None:
    child = child_of("import time; time.sleep(60)")
    successor = child.successor()
    assert (successor.command, successor.process, successor.started_at) == (child.command, None, None)
    child.stop()

"""`trmon top` and `trmon show` over a real service; the live one in a real terminal, and the table of signals."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from typing import Self

import httpx
import numpy as np
import pytest
from rich.console import Console

from tests.fixtures.command import run_here, run_python
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.prometheus import binary
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, await_batches, send, send_step
from tests.fixtures.waiting import eventually
from trmon.cli.show import signal_course_table
from trmon.domain.identity import RunKey
from trmon_client.api import SignalBand, SignalHistory
from trmon_client.core import wire

COMMAND = (sys.executable, "-m", "trmon")
HEALTHY = RunKey("math", "fine")
N_STEPS = 30


@pytest.fixture(scope="module")
def watched(shared_service: ThreadedService, shared: httpx.Client) -> str:
    """The address of a service with a run whose log-probs are corrupt from step 3 on, and one that is as ever."""
    for key in (MATH, HEALTHY):
        send(shared, key, wire.Start(**ORIGIN, owner="ana", tags=["dapo"]))
        for step in range(N_STEPS):
            spoilt = {"n_invalid": [1, 0, 0, 0]} if key is MATH and step >= 3 else {}
            send_step(shared, key, step=step, content=columns(seed=step, **spoilt))
    eventually(lambda: fleet(shared)["grpo"]["kind"], lambda kind: kind == "act")
    for key in (MATH, HEALTHY):
        await_batches(shared, key, n=29)
    return shared_service.url


def fleet(client: httpx.Client) -> dict[str, dict[str, str]]:
    return {run["run"]: run["verdict"] for run in client.get("/api/v1/fleet").json()["items"]}


RUN_EACH = """
import sys
from trmon.cli import app
for command in sys.argv[1:]:
    try:
        app(command.split())
    except SystemExit as end:
        assert not end.code, command
"""


def test_a_terminal_that_knows_no_unicode_is_shown_what_it_knows(watched: str) -> None:
    done = run_python(RUN_EACH, "top --once", "show math/grpo", TRMON_URL=watched, PYTHONIOENCODING="ascii")
    said = done.stdout.count("corrupt log-probs since step 3")
    assert (done.returncode, said >= 2) == (0, True), done.stderr


class Terminal:
    """A terminal, of 110 columns unless told otherwise, and 20 lines in which one command runs."""

    def __init__(self, command: str, *, columns: int = 110) -> None:
        self._name = f"trmon-{uuid.uuid4().hex}"
        size = ("-x", str(columns), "-y", "20")
        environment = ("-e", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}")
        # The readline of the tests' own Python exports the size of another terminal, which would be believed.
        self._tmux("new-session", "-d", *size, *environment, f"unset COLUMNS LINES; {command}; sleep 600")

    def text(self) -> str:
        """Return what it shows."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        self._tmux("send-keys", *keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End it and what runs in it."""
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = [binary("tmux"), "-u", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.server("tmux")
def test_it_follows_a_service_that_comes_and_goes(process: ServiceProcess) -> None:
    command = f"{shlex.join(COMMAND)} top --every 0.2 --url {process.url}; echo ended with $?"
    with process.client() as client, Terminal(command) as top:
        send(client, MATH, wire.Start(**ORIGIN))
        send_step(client, MATH, step=0)
        eventually(top.text, lambda text: "math/grpo" in text and "no run needs you" in text, timeout_seconds=60.0)
        for step in range(1, 8):
            send_step(client, MATH, step=step, content=columns(seed=step, n_invalid=[1, 0, 0, 0]))
        eventually(top.text, lambda text: "1 run needs you" in text and "Act: corrupt log-probs" in text)
        process.kill()
        eventually(top.text, lambda text: "ago: no service answers" in text and "Act: corrupt log-probs" in text)
        process.start()
        eventually(top.text, lambda text: "no service answers" not in text and "math/grpo" in text)
        process.process.send_signal(signal.SIGSTOP)
        try:
            eventually(top.text, lambda text: "ago: the service has not answered since" in text)
            top.press("q")
            eventually(top.text, lambda text: "ended with 0" in text)
        finally:
            process.process.send_signal(signal.SIGCONT)


@pytest.mark.server("tmux")
def test_keys_filter_and_ctrl_c_restores_the_terminal(watched: str) -> None:
    command = f"{shlex.join(COMMAND)} top --every 0.2 --url {watched}; echo ended with $?"
    with Terminal(command, columns=80) as top:
        eventually(top.text, lambda text: "math/grpo" in text and "math/fine" in text, timeout_seconds=60.0)
        assert "Act: corrupt log-probs" in top.text()
        top.press("/", "f", "i", "n")
        eventually(top.text, lambda text: "/fin_" in text and "1 of 2 runs" in text and "math/grpo" not in text)
        top.press("q", "q")
        eventually(top.text, lambda text: "none of 2 runs" in text)
        top.press("Escape")
        eventually(top.text, lambda text: "math/grpo" in text)
        top.press("C-c")
        ended = eventually(top.text, lambda text: "ended with" in text)
    assert "ended with 0" in ended
    assert "math/grpo" not in ended


def test_text_of_others_does_not_control_the_terminal(watched: str) -> None:
    hostile = "ana\x1b]0;owned\x07\x9b2J\u202e"
    with httpx.Client(base_url=watched, trust_env=False) as client:
        alerts = client.get("/api/v1/alerts", params={"state": "firing"}).json()["items"]
        for alert in alerts:
            ack = {"author": hostile, "note": hostile}
            client.post(f"/api/v1/alerts/{alert['identity']}/ack", json=ack).raise_for_status()
    done = run_here("show", "math/grpo", "--url", watched)
    assert done.exit_code == 0, done.stderr
    assert "acknowledged by ana" in done.stdout
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout)
    as_json = run_here("diagnose", "math/grpo", "--json", "--url", watched).stdout
    assert json.loads(as_json)["incident"]["acked_by"] == "ana\ufffd]0;owned\ufffd\ufffd2J\u202e"
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(as_json)


VALUES = np.array([12345.678, -0.000748391, -1.23456e-05])
NAMES = ("reward_mean", "staleness_abs_log_ratio_max", "mismatch_abs_log_ratio_max", "mismatch_kl_k3")


def drawn(width: int) -> list[str]:
    """Return the lines of the table of four signals."""
    band = SignalBand(last=VALUES, mean=VALUES, min=VALUES, max=VALUES)
    history = SignalHistory(
        run="math/grpo",
        exact=True,
        **dict.fromkeys(("step", "attempt_id", "update", "closed_at", "count"), np.arange(3)),
        bands=dict.fromkeys(NAMES, band),
    )
    text = io.StringIO()
    console = Console(file=text, width=width)
    console.print(signal_course_table(history, NAMES, told=frozenset(), console=console))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_numbers_are_whole_and_no_line_is_wrapped(width: int) -> None:
    lines = [line for line in drawn(width) if re.search(r"e-05", line)]
    assert len(lines) == len(NAMES)
    assert all(re.search(r"-0\.000748\d? +1\.23\d?e\+04", line) for line in lines)
    assert not any("…" in line for line in lines[2:])
    assert "staleness_ab" in lines[1]
    assert "ratio_max" in lines[1]

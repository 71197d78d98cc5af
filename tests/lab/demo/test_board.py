"""The demo's table, with and without a terminal."""

from __future__ import annotations

import io
import math

from rich.console import Console

from trmon.lab.demo.board import Board
from trmon.lab.demo.readings import RunReading

N_STEPS = 40


def reading(step: int, *, firing: bool = False, state: str = "running") -> RunReading:
    """Return a run after a step."""
    signals = {"reward_mean": 0.5, "mismatch_kl_k3": 0.01, "mismatch_chi2_token": 0.2, "mismatch_ess_token": math.nan}
    return RunReading(
        state=state,
        steps=tuple(range(step)),
        signals={name: (value,) for name, value in signals.items()},
        threshold="trm: mean_k3 ≤ 0.001",
        firing=("mask_rate",) if firing else (),
    )


def shown(*readings: RunReading, terminal: bool) -> str:
    """Return the output for a run with these readings."""
    written = io.StringIO()
    console = Console(file=written, width=160, force_terminal=terminal, color_system=None)
    with Board(console, n_steps=N_STEPS) as board:
        for one in readings:
            board.show({"ill": one}, seconds=1.0)
    return written.getvalue()


def test_without_a_terminal_a_run_prints_every_twenty_steps_and_at_its_end() -> None:
    steps = [reading(step) for step in (0, 3, 19, 20, 21, 39, 40, 40)]
    assert [line.split()[2] for line in shown(*steps, terminal=False).splitlines()] == ["20/40", "40/40"]


def test_an_unknown_value_is_not_shown_as_a_number() -> None:
    (line,) = shown(reading(20), terminal=False).splitlines()
    assert "reward 0.500  kl_k3 0.01000  chi2 0.200  ESS -  mask rate -  alerts none" in line


def test_a_run_that_has_finished_says_so_since_its_alerts_have_resolved() -> None:
    for terminal in (False, True):
        text = shown(reading(40, state="finished"), terminal=terminal)
        assert "finished" in text
        assert "none" not in text


def test_a_terminal_shows_the_threshold_and_the_firing_rules() -> None:
    text = shown(reading(20, firing=True), terminal=True)
    assert "trm: mean_k3 ≤ 0.001" in text
    assert "mask_rate" in text


def test_a_run_without_a_step_is_warming_up_not_healthy() -> None:
    text = shown(reading(0), terminal=True)
    assert "warming up" in text
    assert "none" not in text

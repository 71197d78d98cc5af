"""The demo, as a stranger runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(300)
def test_the_ill_run_is_reported_before_its_reward_collapses_and_the_healthy_one_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trmon", "demo", "--data-dir", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"

    # Where the service is slow beside the trainers, the mask rate is told before it gives way to its cause.
    alerted = re.search(r"Detected at step (\d+): (?:stale_rollouts|mask_rate) \(warn\)", ended.stdout)
    collapsed = re.search(r"collapsed at step (\d+)", ended.stdout)
    assert alerted is not None, ended.stdout
    assert "demo/ill: rollouts come from outdated weights" in ended.stdout
    assert collapsed is not None, ended.stdout
    assert int(alerted[1]) < int(collapsed[1])
    assert "The healthy run raised no alert" in ended.stdout
    calibrated = re.search(r"calibrated on (\d+) sequences of (\d+) steps", ended.stdout)
    rejected = re.search(r"; (\S+)% of the last 80 steps were rejected", ended.stdout)
    assert calibrated is not None, ended.stdout
    assert (int(calibrated[1]) >= 2048, int(calibrated[2]) >= 20) == (True, True)
    assert rejected is not None, ended.stdout
    assert float(rejected[1]) <= 3.0


def test_an_unknown_injection_is_refused_by_naming_those_there_are(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trmon", "demo", "--inject", "gremlins"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "--inject: 'gremlins' must be one of quantise, stale, router, pad, support, lr" in ended.stderr

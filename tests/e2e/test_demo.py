"""The demo, as a stranger runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class ToldRun:
    """What the demo prints about a failing run."""

    text: str
    onset_step: int
    kl: float
    alert_step: int
    severity: str
    title: str
    since_step: int
    last_good_step: int
    collapse_step: int


def told(output: str, run: str) -> ToldRun:
    """Return what the demo prints about a run; the pattern is the whole story, so that a missing part fails."""
    (text,) = (part for part in re.split(r"^The ", output, flags=re.MULTILINE) if part.startswith(f"{run} run: "))
    found = re.search(
        r"from step (\d+) on, .* is (\S+)\.\n"
        r"  Detected at step (\d+) \((\w+)\): (.*) since step (\d+), last good step (\d+)\.\n"
        r"[^$]*collapsed at step (\d+)",
        text,
    )
    assert found is not None, output
    onset, kl, alert, severity, title, since, last_good, collapse = found.groups()
    return ToldRun(text, int(onset), float(kl), int(alert), severity, title, int(since), int(last_good), int(collapse))


@pytest.mark.timeout(600)
def test_the_failing_runs_are_reported_with_their_causes_and_the_healthy_one_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trmon", "demo", "--data-dir", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"

    ill, collapsing = told(ended.stdout, "ill"), told(ended.stdout, "collapsing")
    assert ill.onset_step <= ill.since_step <= ill.alert_step < ill.collapse_step, ended.stdout
    assert ill.since_step - 30 <= ill.last_good_step < ill.since_step
    # The incident may open with another sign of drift, and be led by its cause as soon as that is known.
    assert "demo/ill: stale rollouts since step" in ill.text
    # A prediction may open it first: training differs between processors.
    assert collapsing.title in ("reward collapse", "a collapse may begin"), ended.stdout
    assert "demo/collapsing: reward collapse since step" in collapsing.text
    assert "(page): " in collapsing.text
    assert collapsing.onset_step < collapsing.since_step <= collapsing.alert_step <= collapsing.collapse_step + 30
    assert collapsing.since_step - 30 <= collapsing.last_good_step < collapsing.since_step
    assert collapsing.kl < 0.02
    assert "The healthy run raised no alert" in ended.stdout


def test_an_unknown_injection_is_refused_by_naming_those_there_are(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trmon", "demo", "--inject", "gremlins"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (
        "--inject: 'gremlins' must be one of quantise, stale, router, pad, support, lr, temperature, reward, nan"
        in ended.stderr
    )

"""The demo, as a stranger runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STORY = re.compile(
    r"from step (?P<onset>\d+) on, .* is (?P<kl>\S+)\.\n"
    r"  Detected at step (?P<alert>\d+) \(\w+\): (?P<title>.*) since step (?P<since>\d+), "
    r"last good step (?P<good>\d+)\.\n"
    r"[^$]*collapsed at step (?P<collapse>\d+)"
)
"""The whole story of a failing run, so that a missing part fails."""


def told(output: str, run: str) -> tuple[str, str, dict[str, float]]:
    """Return what the demo prints about a run: the text, the title of its alert, and the numbers by name."""
    (text,) = (part for part in re.split(r"^The ", output, flags=re.MULTILINE) if part.startswith(f"{run} run: "))
    found = STORY.search(text)
    assert found is not None, output
    named = found.groupdict()
    return text, named.pop("title"), {name: float(value) for name, value in named.items()}


@pytest.mark.timeout(600)
def test_the_failing_runs_are_reported_with_their_causes_and_the_healthy_one_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trmon", "demo", "--data-dir", str(tmp_path)]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"

    text, _, ill = told(ended.stdout, "ill")
    assert ill["onset"] <= ill["since"] <= ill["alert"] < ill["collapse"], ended.stdout
    assert ill["since"] - 30 <= ill["good"] < ill["since"]
    # The incident may open with another sign of drift, and be led by its cause as soon as that is known.
    assert "demo/ill: stale rollouts since step" in text
    text, title, collapsing = told(ended.stdout, "collapsing")
    # A prediction may open it first: training differs between processors.
    assert title in ("reward collapse", "a collapse may begin"), ended.stdout
    assert "demo/collapsing: reward collapse since step" in text
    assert "(page): " in text
    assert collapsing["onset"] < collapsing["since"] <= collapsing["alert"] <= collapsing["collapse"] + 30
    assert collapsing["since"] - 30 <= collapsing["good"] < collapsing["since"]
    assert collapsing["kl"] < 0.02
    assert "The healthy run raised no alert" in ended.stdout

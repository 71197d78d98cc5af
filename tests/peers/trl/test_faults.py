"""The faults of examples/faults_trl.py, in a real trainer and before a real service: each is named, and no other."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

from tests.peers.conftest import ROOT
from tests.peers.trl import tiny

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(tiny.VERSION < (1, 0), reason="this TRL calls a rollout_func with vLLM only"),
]

DROPPED = "log-probs dropped at the end, or padding under the mask"
EXPECTED = {
    "none": ("-", "healthy"),
    "none, half of the answers cut": ("-", "healthy"),
    "sampler in bfloat16": ("-", "healthy"),
    "sampler's weights frozen": ("engine mismatch",) * 2,
    "mask of all ones": (DROPPED, DROPPED),
    "sampler without the temperature": ("two temperatures", "two temperatures"),
    "trainer without the temperature": ("two temperatures", "two temperatures"),
    "log-probs from before the temperature": ("log-probs from before the temperature",) * 2,
    "learning rate x30": ("reward collapse", ""),
    "log-probs shifted by one": ("log-probs shifted by a token",) * 2,
    "25% of the log-probs NaN": ("corrupt log-probs",) * 2,
    "top-p 0.9, and one NaN": ("", "support shift"),
}
"""The first cause and what leads in the end, by fault; how they begin."""
REMEDIES = {
    "sampler's weights frozen": "check that new weights reach the rollout engine",
    "sampler without the temperature": "apply the run's temperature in the rollout engine",
    "trainer without the temperature": "divide the trainer's logits",
    "log-probs from before the temperature": "have the rollout engine return the log-probs of what it samples from",
}
SOON = 8
"""Steps until the first cause, at most."""


@pytest.mark.parametrize("isa", ["", "default"], ids=["this CPU", "plain instructions"])
def test_each_fault_is_named(service: httpx.Client, isa: str) -> None:
    if isa and not os.environ.get("TRMON_ALL_FAULTS"):
        pytest.skip("TRMON_ALL_FAULTS=1 runs it: it takes as long again")
    environment = {**os.environ, "TRMON_URL": str(service.base_url).rstrip("/"), "ATEN_CPU_CAPABILITY": isa}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/faults_trl.py")],
        env={name: value for name, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == list(EXPECTED)
    for fault, first, delay, since, last, remedy, end in rows:
        expected = EXPECTED[fault]
        assert first.startswith(expected[0]), fault
        assert last.startswith(expected[1]), fault
        assert remedy.startswith(REMEDIES.get(fault, "")), fault
        assert "ended ill" not in end, fault
        if first != "-":
            assert 0 <= int(delay.split()[0]) <= SOON, fault
            assert 29 <= int(since.split()[1]) <= 33, fault

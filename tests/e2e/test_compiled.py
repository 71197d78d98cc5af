"""A trainer with `compiled=True`: its first call waits for no compiler, and its reports are those of NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("numba")

from tests.core.agreement import agree
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon_client.core.columns.schema import PAIRS

RUN = "/api/v1/runs/math/compiled"
TRAINER = """
import json, sys
import numpy as np
import trmon_client as trmon
from trmon_client.core.large_batches.compiled.kernel_loading import KERNELS

random = np.random.default_rng(0)
mu = -random.exponential(1.0, (32, 512)).astype(np.float32)
old = np.minimum(mu + random.normal(0, 0.05, mu.shape), 0).astype(np.float32)
batch = {
    "rollout_logprobs": mu,
    "old_logprobs": old,
    "logprobs": np.minimum(old + random.normal(0, 0.02, mu.shape), 0).astype(np.float32),
    "mask": np.arange(512) < random.integers(64, 513, (32, 1)),
    "advantages": random.normal(size=32),
    "rewards": random.uniform(size=32),
}
given = {"url": sys.argv[1], "spool_dir": sys.argv[2], "policy": "trm", "compiled": True}
with trmon.init(project="math", run="compiled", **given) as run:
    first = run.log_batch(step=0, **batch)
    was_loaded = KERNELS.loaded is not None
    is_loaded = KERNELS.wait(timeout_seconds=240)
    second = run.log_batch(step=1, **batch)
    run.close(timeout=None)
found = {"was_loaded": was_loaded, "is_loaded": is_loaded}
print(json.dumps({**found, "reasons": [first.reasons, second.reasons]}))
"""
"""The same batch twice: by NumPy while the kernels are compiled, and by the kernels."""
PREFIXES = tuple(f"{pair}_" for pair in PAIRS)
UNSTABLE = ("step_seconds", "temperature_near", "temperature_far")
"""Signals of the clock, and quotients whose divisor, a covariance, is near 0."""


def test_reports_of_the_kernels_are_those_of_numpy_and_the_first_call_does_not_wait(tmp_path: Path) -> None:
    service = ThreadedService(tmp_path / "data")
    try:
        # An empty cache: the kernels are compiled now.
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", TRAINER, service.url, str(tmp_path / "spool")]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=280)
        trained = json.loads(done.stdout.splitlines()[-1])
        with service.client() as client:
            by_numpy, compiled = (eventually(lambda step=step: _row(client, step)) for step in (0, 1))
            general, fused = (client.get(f"{RUN}/batches/{step}/sequences").json()["columns"] for step in (0, 1))
    finally:
        service.stop()
    assert (trained["was_loaded"], trained["is_loaded"]) == (False, True)
    assert trained["reasons"][0] == trained["reasons"][1]
    assert (by_numpy["mismatches"], compiled["mismatches"]) == (0, 0)
    assert general.keys() == fused.keys()
    assert general != fused  # The last bits of sums differ, so that the second was of the kernels.
    agree(fused, {name: values for name, values in general.items() if name.startswith(PREFIXES)})
    for name in ("n_tokens", "n_clipped", "n_leaked", "sum_logp", "sum_abs_is_dev", "advantage", "reward"):
        np.testing.assert_allclose(fused[name], general[name], rtol=1e-5, err_msg=name)
    assert by_numpy["signals"].keys() == compiled["signals"].keys()
    for name in (name for name in by_numpy["signals"] if not name.endswith(UNSTABLE)):
        want, got = (np.nan if row["signals"][name] is None else row["signals"][name] for row in (by_numpy, compiled))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def _row(client: httpx.Client, step: int) -> dict[str, Any]:
    answer = client.get(f"{RUN}/batches/{step}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found

"""An example, run as a user runs it, and the run that the service then has."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 500
RANKS = 2
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS))


def run_example(client: httpx.Client, name: str, *arguments: object, launcher: tuple[str, ...] = ()) -> str:
    """Run an example to its end against the service of a client, and return what it printed."""
    script = EXAMPLES / f"{name}.py"
    with tempfile.TemporaryDirectory() as spool:
        done = subprocess.run(
            [sys.executable, *launcher, str(script), *map(str, arguments)],
            env={**os.environ, "TRMON_URL": str(client.base_url).rstrip("/"), "TRMON_SPOOL_DIR": spool},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert f"look at it: trmon show examples/{name.replace('_', '-')}" in done.stdout
    return done.stdout


def path_of(name: str) -> str:
    """Return the path of an example's run."""
    return f"/api/v1/runs/examples/{name.replace('_', '-')}"


def batches(client: httpx.Client, name: str, *, n: int) -> dict[tuple[int, int | None], dict[str, Any]]:
    """Return the batches of an example by step and update, once it has ended cleanly and has n of them."""
    run = eventually(lambda: client.get(path_of(name)).json(), lambda run: run["state"] == "finished")
    assert (run["end_phrase"], run["warnings"], run["incident"]) == ("closed", [], None)
    query = {"limit": 500}
    found = eventually(
        lambda: client.get(f"{path_of(name)}/batches", params=query).json()["items"], lambda b: len(b) == n
    )
    assert {(batch["complete"], batch["mismatches"]) for batch in found} == {(True, 0)}
    return {(batch["step"], batch["update"]): batch for batch in found}


def assert_healthy(client: httpx.Client, name: str) -> None:
    """Check that an example has ended without a finding, now or before, beyond those that are shown and never sent."""
    diagnosis = client.get(f"{path_of(name)}/diagnosis").json()
    found = [one for one in (*diagnosis["findings"], *diagnosis["over"]) if one["severity"] != "info"]
    assert (diagnosis["word"], found) == ("healthy", [])


def group_sizes(client: httpx.Client, name: str, *, step: int, update: int | None) -> Counter[int]:
    """Return how many responses each group of a batch has."""
    query: dict[str, int] = {"limit": 500} if update is None else {"limit": 500, "update": update}
    sequences = client.get(f"{path_of(name)}/batches/{step}/sequences", params=query).json()
    return Counter(sequences["columns"]["group_id"])

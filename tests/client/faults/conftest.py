"""What the client's fault tests share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.client.faults import tiny_trainer

PROCESS_SECONDS = 110.0
EXIT_SECONDS = 30.0
"""Far above the limit of 4 s: no result depends on a busy machine."""

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import tests.client.patient_exit
import trmon_client as trmon
from tests.client.faults.tiny_trainer import tell, train
"""


@pytest.fixture(scope="session")
def untouched() -> str:
    """The digest of the parameters that training without trmon ends with."""
    return tiny_trainer.train()


@dataclass(frozen=True)
class FinishedTrainer:
    """A trainer's process that has ended: what it told, and how long after `ends_at` it was gone."""

    told: dict[str, str]
    stderr: str
    returncode: int
    exit_seconds: float

    def assert_untouched(self, digest: str, *, code: int = 0) -> None:
        """Assert that it trained to this digest and ended as without trmon."""
        assert (self.returncode, self.told["digest"]) == (code, digest), self.stderr
        assert code or "Traceback" not in self.stderr
        assert self.exit_seconds < EXIT_SECONDS


class RunTrainer(Protocol):
    def __call__(
        self, script: str, *, url: str = "", prefix: tuple[str, ...] = (), **variables: str
    ) -> FinishedTrainer: ...


@pytest.fixture
def run_trainer(tmp_path: Path) -> RunTrainer:
    """Runs a trainer's script in a separate process, which spools below the test's folder."""

    def run(script: str, *, url: str = "", prefix: tuple[str, ...] = (), **variables: str) -> FinishedTrainer:
        given = {"TRMON_PROJECT": "math", "TRMON_RUN": "grpo", "TRMON_SPOOL_DIR": str(tmp_path / "spool")}
        process = subprocess.Popen(
            [*prefix, sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
            env={**os.environ, **given, "TRMON_URL": url, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=PROCESS_SECONDS)
        finally:
            process.kill()
        ended_at = time.time()
        told = dict(line.split("=", 1) for line in stdout.splitlines())
        return FinishedTrainer(told, stderr, process.returncode, ended_at - float(told.get("ends_at", ended_at)))

    return run

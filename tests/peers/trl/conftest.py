"""What a trainer of TRL sends, as a server receives it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals
from trmon_client.integrations.trl import attach


def run_ranks(code: str, folder: Path, *arguments: str, url: str, ranks: int, timeout_seconds: float) -> str:
    """Run a program on so many ranks, each in a process of its own, and return what they wrote to stderr."""
    script = folder / "trainer.py"
    script.write_text(code)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(folder), *arguments],
        env={**os.environ, "TRMON_URL": url, "TRMON_SPOOL_DIR": str(folder / "spool"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


class Received:
    """The messages of one run; `train` attaches a trainer and trains it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def train(self, trainer: Any, *, resume: str | None = None, **given: Any) -> Any:
        """Train with trmon attached, and return the trainer when all has arrived."""
        before = len(self.of(wire.Finish))
        attach(trainer, project="math", run="tiny", url=self._peer.url, **given)
        trainer.train(**({"resume_from_checkpoint": resume} if resume else {}))
        self._peer.wait_until(lambda peer: len(peer.of(wire.Finish)) > before)
        return trainer

    def of(self, kind: type) -> list[Any]:
        """Return the messages of a kind, in order."""
        return self._peer.of(kind)

    @property
    def keys(self) -> list[tuple[int, int | None, int, int | None]]:
        """The (step, update, chunk, chunks) of each report, in order."""
        return [(report.step, report.update, report.chunk, report.chunks) for report in self.of(wire.Report)]

    @property
    def columns(self) -> list[Columns]:
        """The columns of each report, in order."""
        return [wire.unpack_columns(report) for report in self.of(wire.Report)]

    def signals(self, step: int) -> dict[str, float]:
        """Return the signals of a step's only report."""
        (report,) = [report for report in self.of(wire.Report) if report.step == step]
        return batch_signals.compute(wire.unpack_columns(report))

    @property
    def n_invalid(self) -> int:
        """The number of invalid tokens over all reports."""
        return sum(int(np.sum(columns["n_invalid"])) for columns in self.columns)

    def scalars(self, name: str) -> dict[int, float]:
        """Return the values of one of the trainer's scalars, by step."""
        return {message.step: message.values[name] for message in self.of(wire.Scalars) if name in message.values}


@pytest.fixture
def received() -> Iterator[Received]:
    """A server that receives one run."""
    with Peer() as peer:
        yield Received(peer)

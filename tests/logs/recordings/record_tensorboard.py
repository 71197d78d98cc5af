"""Writes the event files here with PyTorch's SummaryWriter (torch 2.13, tensorboard 2.21).

python tests/logs/recordings/record_tensorboard.py
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

HERE = Path(__file__).parent
START = 1_700_000_000.0


def metrics(step: int) -> dict[str, float]:
    """Return what verl logs at a step, and a name of our own."""
    return {
        "actor/grad_norm": math.inf if step == 4 else 0.25,
        "actor/pg_loss": math.nan if step == 5 else -0.125,
        "critic/score/mean": 0.5,
        "rollout_corr/k3_kl": 0.001 * step,
        "mine/seen": float(step),
    }


def write(folder: Path, steps: range, *, started: float, purge_step: int | None = None, **style: bool) -> None:
    """Write an event file of the steps, a minute each."""
    before = set(folder.glob("events*"))
    writer = SummaryWriter(str(folder), purge_step=purge_step)
    for step in steps:
        for name, value in metrics(step).items():
            writer.add_scalar(name, value, step, walltime=started + 60.0 * step, **style)
    if style:
        writer.add_text("config", "lr: 1e-6", 0)
        writer.add_histogram("weights", np.arange(4.0), 0)
    writer.close()
    (file,) = set(folder.glob("events*")) - before
    file.rename(folder / f"events.out.tfevents.{int(started)}.trainer.1.0")


def main() -> None:
    """Write a run, a run that was restarted at step 3, and one of tensors, texts and histograms."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    write(HERE / "tensorboard" / "grpo", range(1, 7), started=START)
    restarted = HERE / "tensorboard" / "restarted"
    write(restarted, range(1, 6), started=START)
    write(restarted, range(3, 8), started=START + 3600.0, purge_step=3)
    write(HERE / "tensorboard" / "tensors", range(1, 4), started=START, new_style=True, double_precision=True)


if __name__ == "__main__":
    main()

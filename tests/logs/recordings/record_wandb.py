"""Writes the offline folder here with wandb's own client (wandb 0.31), without what it tells of the machine.

python tests/logs/recordings/record_wandb.py
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import wandb

HERE = Path(__file__).parent
START = 1_700_000_000.0


def metrics(step: int) -> dict[str, object]:
    """Return what verl logs at a step, and names of our own."""
    return {
        "actor/grad_norm": math.inf if step == 4 else 0.25,
        "actor/pg_loss": math.nan if step == 5 else -0.125,
        "critic/score/mean": 0.5,
        "rollout_corr/k3_kl": 0.001 * step,
        "mine/seen": step,
        "mine": {"nested": {"depth": 2}},
        "_timestamp": START + 60.0 * step,
    }


def main() -> None:
    """Write a run of six steps, with a histogram in its last."""
    settings = wandb.Settings(
        disable_git=True,
        disable_code=True,
        host="trainer",
        program="train.py",
        console="off",
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    with TemporaryDirectory() as folder:
        run = wandb.init(project="math", name="grpo", id="trmon01", mode="offline", dir=folder, settings=settings)
        for step in range(1, 7):
            extra = {"weights": wandb.Histogram([1.0, 2.0, 3.0])} if step == 6 else {}
            run.log({**metrics(step), **extra}, step=step)
        run.finish()
        (recorded,) = Path(folder, "wandb").glob("offline-run-*/run-trmon01.wandb")
        target = HERE / "wandb" / "offline-run-20231114_221320-trmon01"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(recorded, target)


if __name__ == "__main__":
    main()

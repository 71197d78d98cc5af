"""Writes the logs here with the clients of their formats (MLflow 3.17, torch 2.13, tensorboard 2.21, wandb 0.31).

python tests/logs/recordings/record.py mlflow|tensorboard|wandb
"""

from __future__ import annotations

import lzma
import math
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
START = 1_700_000_000


def metrics(step: int) -> dict[str, float]:
    """Return what verl logs at a step, and a name of our own."""
    return {
        "actor/grad_norm": math.inf if step == 4 else 0.25,
        "actor/pg_loss": math.nan if step == 5 else -0.125,
        "critic/score/mean": 0.5,
        "rollout_corr/k3_kl": 0.001 * step,
        "mine/seen": float(step),
    }


def record_mlflow(folder: Path) -> None:
    """Write a run of six steps, and one of two that was deleted; packed, since empty tables alone take 700 kB."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    os.chdir(folder)
    store = Path("mlflow.db")
    client = MlflowClient(f"sqlite:///{store}")
    experiment = client.create_experiment("math", artifact_location="file:///artifacts")
    for name, steps in (("grpo", range(1, 7)), ("deleted", range(1, 3))):
        run = client.create_run(experiment, start_time=START * 1000, run_name=name, tags={"mlflow.user": "trainer"})
        for step in steps:
            at = (START + 60 * step) * 1000
            client.log_batch(run.info.run_id, [Metric(key, value, at, step) for key, value in metrics(step).items()])
        client.set_terminated(run.info.run_id, end_time=(START + 60 * 7) * 1000)
        if name == "deleted":
            client.delete_run(run.info.run_id)
    (HERE / "mlflow" / "mlflow.db.xz").write_bytes(lzma.compress(store.read_bytes(), preset=9))


def record_tensorboard(_: Path) -> None:
    """Write a run, a run that was restarted at step 3, and one of tensors, texts and histograms."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    _write_events("grpo", range(1, 7))
    _write_events("restarted", range(1, 6))
    _write_events("restarted", range(3, 8), started=START + 3600, purge_step=3)
    _write_events("tensors", range(1, 4), new_style=True, double_precision=True)


def _write_events(
    run: str, steps: range, *, started: int = START, purge_step: int | None = None, **style: bool
) -> None:
    """Write an event file of the steps, a minute each."""
    import numpy as np
    from torch.utils.tensorboard import SummaryWriter

    folder = HERE / "tensorboard" / run
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
    file.rename(folder / f"events.out.tfevents.{started}.trainer.1.0")


def record_wandb(folder: Path) -> None:
    """Write a run of six steps, with a histogram in its last, without what wandb tells of the machine."""
    import wandb

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
    run = wandb.init(project="math", name="grpo", id="trmon01", mode="offline", dir=str(folder), settings=settings)
    for step in range(1, 7):
        own = {"mine/seen": step, "mine": {"nested": {"depth": 2}}, "_timestamp": START + 60.0 * step}
        extra = {"weights": wandb.Histogram([1.0, 2.0, 3.0])} if step == 6 else {}
        run.log({**metrics(step), **own, **extra}, step=step)
    run.finish()
    (recorded,) = (folder / "wandb").glob("offline-run-*/run-trmon01.wandb")
    target = HERE / "wandb" / "offline-run-20231114_221320-trmon01"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(recorded, target)


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        {"mlflow": record_mlflow, "tensorboard": record_tensorboard, "wandb": record_wandb}[sys.argv[1]](Path(made))

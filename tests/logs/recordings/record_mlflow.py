"""Writes the store here with MLflow's own client (MLflow 3.17), packed, since its empty tables alone take 700 kB.

python tests/logs/recordings/record_mlflow.py
"""

from __future__ import annotations

import lzma
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow import MlflowClient
from mlflow.entities import Metric

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


def main() -> None:
    """Write a run of six steps, and one of two that was deleted."""
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        store = Path("mlflow.db")
        client = MlflowClient(f"sqlite:///{store}")
        experiment = client.create_experiment("math", artifact_location="file:///artifacts")
        for name, steps in (("grpo", range(1, 7)), ("deleted", range(1, 3))):
            run = client.create_run(experiment, start_time=START * 1000, run_name=name, tags={"mlflow.user": "trainer"})
            for step in steps:
                at = (START + 60 * step) * 1000
                client.log_batch(
                    run.info.run_id, [Metric(key, value, at, step) for key, value in metrics(step).items()]
                )
            client.set_terminated(run.info.run_id, end_time=(START + 60 * 7) * 1000)
            if name == "deleted":
                client.delete_run(run.info.run_id)
        (HERE / "mlflow" / "mlflow.db.xz").write_bytes(lzma.compress(store.read_bytes(), preset=9))


if __name__ == "__main__":
    main()

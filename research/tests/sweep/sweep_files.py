"""Files as a sweep writes them, with few columns and any reward."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def write_sweep_file(folder: Path, name: str, *, rewards: Sequence[float], onset: int | None) -> Path:
    """Write the file of a run, whose drift between the engines grows to 1 at its end, and return its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_updates = len(rewards)
    table = pa.table(
        {
            "update": pa.array(range(n_updates), pa.int16()),
            "reward_mean": pa.array(rewards, pa.float32()),
            "grad_norm": pa.array([1.0] * n_updates, pa.float32()),
            "response_length_mean": pa.array([4.0] * n_updates, pa.float32()),
            "mismatch_kl_k3": pa.array([(step + 1) / n_updates for step in range(n_updates)], pa.float32()),
            "staleness_kl_k3": pa.array([0.5] * n_updates, pa.float32()),
            "evaluated_reward": pa.array(rewards, pa.float32()),
        }
    )
    label = {"onset": onset, "sign": None if onset is None else "reward_fell", "n_updates": n_updates}
    footer = {"format": 2, "config": {"n_prompts": 12, "n_responses": 8}, "outcome": {"label": label}}
    path = folder / f"{name}.parquet"
    pq.write_table(table.replace_schema_metadata({"trmon": json.dumps(footer)}), path)
    return path

"""Columns for tests: from a golden file, or from given log-ratios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.core import golden
from trmon_client.core import statistics
from trmon_client.core.column_schema import COLUMNS
from trmon_client.core.columns import Columns


def golden_columns(case: str) -> Columns:
    """Return the columns and advantages of a golden file in the dtypes of the schema, with versions of lag 0."""
    stated = {name: array.astype(COLUMNS[name].dtype) for name, array in golden.columns(case).items()}
    advantages = golden.inputs(case)["advantages"]
    versions = np.zeros(len(advantages), COLUMNS["version_min"].dtype)
    return Columns({**stated, "advantage": advantages, "version_min": versions}, trainer_version=0)


def of_log_ratios(*rows: list[float], **given: Any) -> Columns:
    """Return columns of the pair total with these log-ratios; log mu is -4 at each token."""
    rollout = [np.full(len(row), -4.0) for row in rows]
    current = [np.array(row, np.float64) - 4.0 for row in rows]
    return statistics.columns(rollout_logprobs=rollout, logprobs=current, **given)


def as_torch(columns: Columns, *, device: str = "cpu") -> Columns:
    """Return the columns as tensors; tensors on the device `meta` hold no data, so reading one raises."""
    return replace(
        columns,
        by_name={name: torch.from_numpy(array).to(device) for name, array in columns.items()},
        histograms={pair: torch.from_numpy(counts).to(device) for pair, counts in columns.histograms.items()},
    )


def with_columns(columns: Columns, added: dict[str, Any]) -> Columns:
    """Return the columns with some added or replaced."""
    return replace(columns, by_name={**columns.by_name, **added})


def filled_with(columns: Columns, number: float) -> Columns:
    """Return the columns with every float column filled with the number."""
    floats = {name: np.full_like(array, number) for name, array in columns.items() if array.dtype.kind == "f"}
    return with_columns(columns, floats)


def with_kl(columns: Columns, max_kl: list[float], *, kl_is: Any = "exact", kl_pair: Any = "total") -> Columns:
    """Return the columns with a KL from logits, where the sum of a sequence equals its maximum."""
    kl = {"max_kl": np.array(max_kl, np.float32), "sum_kl": np.array(max_kl, np.float64)}
    return replace(with_columns(columns, kl), kl_is=kl_is, kl_pair=kl_pair)

"""The stored runs of a sweep, with the features that the service would have computed of each at every update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.risk_inputs import (
    FEATURE_NAMES,
    INPUTS,
    OF_UPDATES,
    SHAPE,
    advanced,
    risk_features,
    scaled,
)
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.sweep.run_file import RunRecord, read_columns, read_record
from trmon_research.sweep.run_labels import RunLabel

RUNS = Path(__file__).parents[2] / "data" / "runs"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run's record and its columns, one value an update."""

    record: RunRecord
    columns: Mapping[str, npt.NDArray[Any]]

    @property
    def config(self) -> ExperimentConfig:
        """The configuration."""
        return self.record.config

    @property
    def label(self) -> RunLabel:
        """Where the run collapsed."""
        return self.record.outcome.label

    @property
    def has_collapsed(self) -> bool:
        """Whether the run collapsed."""
        return self.label.onset is not None

    @property
    def end(self) -> int:
        """The first update that must not be used: the onset, or the end."""
        return self.label.n_updates if self.label.onset is None else self.label.onset

    @cached_property
    def inputs(self) -> Floats:
        """The inputs that the service has at the rollout of each update, [updates, INPUTS].

        The optimizer steps of an update are known at the next one.
        """
        n = self.label.n_updates
        values = np.full((n, len(INPUTS)), np.nan)
        for place, given in enumerate(INPUTS):
            column = self.columns.get(f"mismatch_{given.name}" if given.of_engines else given.name)
            if column is not None:
                values[:, place] = column
        values[1:, OF_UPDATES] = values[:-1, OF_UPDATES]
        values[0, OF_UPDATES] = np.nan
        return values

    @cached_property
    def features(self) -> Floats:
        """The features at each update, [updates, FEATURE_NAMES]."""
        history, found = np.zeros(SHAPE), np.empty((self.label.n_updates, len(FEATURE_NAMES)))
        for update, values in enumerate(scaled(self.inputs)):
            history = advanced(history, values)
            found[update] = risk_features(history).ravel()
        return found


def read_runs(folder: Path = RUNS) -> list[StoredRun]:
    """Return the runs of a folder, by name."""
    return [StoredRun(read_record(path), read_columns(path)) for path in sorted(folder.glob("*.parquet"))]

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
    BASELINE_STEPS,
    FEATURE_NAMES,
    INPUTS,
    OF_UPDATES,
    SHAPE,
    advanced,
    reward_error,
    risk_features,
    scaled,
)
from trmon.domain.collapse_risk.risk_model import HORIZON
from trmon_research.collapse.severity import COLLAPSE, HURT, Course, Floats
from trmon_research.sweep.run_file import RunRecord, read_columns, read_record
from trmon_research.sweep.sweep_plan import configuration_hash, first_change

RUNS = Path(__file__).parents[2] / "data" / "runs"


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run: its columns, one value an update, and what it is a repetition of.

    `begins` is the first update at which its configuration changes; `was_stopped` says that it ended before its last
    planned update.
    """

    name: str
    configuration: str
    mechanism: str
    begins: int
    was_stopped: bool
    columns: Mapping[str, npt.NDArray[Any]]
    record: RunRecord

    @property
    def n_updates(self) -> int:
        """How many updates it has."""
        return len(self.columns["update"])

    @cached_property
    def inputs(self) -> Floats:
        """The inputs that the service has at the rollout of each update, [updates, INPUTS].

        The optimizer steps of an update are known at the next one.
        """
        n = self.n_updates
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
        history, found = np.zeros(SHAPE), np.empty((self.n_updates, len(FEATURE_NAMES)))
        for update, values in enumerate(scaled(self.inputs)):
            history = advanced(history, values)
            found[update] = risk_features(history).ravel()
        return found

    @cached_property
    def reward_error(self) -> float:
        """The noise of its reward at its start."""
        history = np.zeros(SHAPE)
        for values in scaled(self.inputs[:BASELINE_STEPS]):
            history = advanced(history, values)
        return reward_error(history)

    @cached_property
    def course(self) -> Course:
        """The course of its clean evaluation."""
        return Course.of(self.columns["evaluated_reward"].astype(float).tolist())

    @cached_property
    def onset(self) -> int | None:
        """The update at which it collapses; None if it does not."""
        return self.course.onset(COLLAPSE)

    @property
    def end(self) -> int:
        """The first update that must not be used: the onset, or the end."""
        return self.n_updates if self.onset is None else self.onset

    @property
    def was_never_hurt(self) -> bool:
        """Whether it ran to its end and was never far below its peak; a run that was stopped early is not known."""
        return not self.was_stopped and bool(self.course.lost.max() < HURT)

    def is_harm(self, update: int) -> bool:
        """Whether it is hurt, or collapses, within 200 updates after an update, or was before."""
        until = update + HORIZON
        return bool((self.course.lost[: until + 1] >= HURT).any()) or (self.onset is not None and self.onset <= until)

    @classmethod
    def of(cls, record: RunRecord, columns: Mapping[str, npt.NDArray[Any]]) -> StoredRun:
        """Return a run of a sweep."""
        config = record.config
        return cls(
            name=config.run_name,
            configuration=configuration_hash(config),
            mechanism=config.mechanism,
            begins=first_change(config),
            was_stopped=len(columns["update"]) < config.n_updates,
            columns=columns,
            record=record,
        )


def read_runs(folder: Path = RUNS) -> list[StoredRun]:
    """Return the runs of a sweep's folder, by name."""
    return [StoredRun.of(read_record(path), read_columns(path)) for path in sorted(folder.glob("*.parquet"))]

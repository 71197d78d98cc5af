"""The kinds of pipeline that a run has, by its configuration and its signals, with what shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.diagnosis.history import History, config_value, declares_replay
from trmon_client.core.policies.policy import Policy


class PipelineKind(Enum):
    """A property of a pipeline that decides which method suits it; a run may have several."""

    SYNC_DENSE = "sync_dense"
    ASYNC = "async"
    MOE = "moe"
    QUANTISED = "quantised"

    @property
    def title(self) -> str:
        """The kind in words."""
        return _TITLES[self]


_TITLES = {
    PipelineKind.SYNC_DENSE: "Synchronous, dense",
    PipelineKind.ASYNC: "Asynchronous",
    PipelineKind.MOE: "Mixture of experts",
    PipelineKind.QUANTISED: "Quantised rollout",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBy:
    """What shows something of a run: a signal or an option of its configuration, and its value as text."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInput:
    """What advice reads of a run: its newest steps, its configuration, and its active policy."""

    history: History
    config: Mapping[str, Any]
    policy: Policy

    def value(self, signal: str) -> float:
        """Return the newest known value of a signal; NaN without one."""
        return self.history.newest(signal)[1]

    def shown(self, *signals: str) -> tuple[ShownBy, ...]:
        """Return the newest values of signals that are known."""
        found = (self.history.newest(signal) for signal in signals)
        return tuple(ShownBy(name=name, value=f"{value:.4g}") for name, value in found if not math.isnan(value))

    def option(self, *names: str) -> ShownBy | None:
        """Return the first option that the configuration has with a value."""
        found = ((name, config_value(self.config, name)) for name in names)
        return next((ShownBy(name=name, value=str(value)) for name, value in found if value is not None), None)


QUANTISED_OPTIONS = (
    *("actor_rollout_ref.rollout.quantization", "rollout_quantization", "quantization"),
    *("actor_rollout_ref.rollout.dtype", "engine.weight_format"),
)
QUANTISED_FORMATS = ("fp8", "float8", "int8", "int4", "int3", "fp4", "nvfp4", "mxfp", "awq", "gptq", "w8a8", "w4a16")


def pipeline_kinds(given: PipelineInput) -> dict[PipelineKind, tuple[ShownBy, ...]]:
    """Return the kinds of a run's pipeline with what shows each; without any other it is synchronous and dense.

    Source: [DRIFT], advice by pipeline.
    """
    shown = {
        PipelineKind.ASYNC: _shows_lag(given),
        PipelineKind.MOE: _shows_experts(given),
        PipelineKind.QUANTISED: _shows_quantisation(given),
    }
    found = {kind: shown_by for kind, shown_by in shown.items() if shown_by}
    return found or {PipelineKind.SYNC_DENSE: given.shown("version_lag_max")}


def _shows_lag(given: PipelineInput) -> tuple[ShownBy, ...]:
    """Return the largest lag if most steps have one: a lag now and then is a late rollout."""
    lags = given.history.find("version_lag_max")[1]
    known = lags[~np.isnan(lags)]
    if not len(known) or not np.median(known) > 0:
        return ()
    return (ShownBy(name="version_lag_max", value=f"{known.max():.4g}"),)


def _shows_experts(given: PipelineInput) -> tuple[ShownBy, ...]:
    measured = given.shown("router_flip_rate", "max_vio")
    if declares_replay(given.config):
        return (*measured, ShownBy(name="router_replay", value="declared"))
    return measured


def _shows_quantisation(given: PipelineInput) -> tuple[ShownBy, ...]:
    options = (given.option(name) for name in QUANTISED_OPTIONS)
    return tuple(one for one in options if one is not None and one.value.lower().startswith(QUANTISED_FORMATS))

"""A monitor that records what a trainer logs, with real columns, and weighs every sequence by 1, without a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals


@dataclass(frozen=True, eq=False)
class RecordedDecision:
    columns: Columns
    sequence_weights: Tensor

    @cached_property
    def signals(self) -> dict[str, float]:
        return batch_signals.compute(self.columns)


@dataclass(frozen=True, eq=False)
class Call:
    step: int
    update: int | None
    inputs: dict[str, Any]
    scalars: dict[str, float]
    decision: RecordedDecision


@dataclass(eq=False)
class RecordingMonitor:
    calls: list[Call] = field(default_factory=list)
    scalars: dict[int, dict[str, float]] = field(default_factory=dict)

    def log_batch(
        self,
        *,
        step: int,
        update: int | None = None,
        chunks: int | None = None,
        scalars: Mapping[str, float] | None = None,
        **inputs: Any,
    ) -> RecordedDecision:
        weights = torch.ones(len(inputs["mask"]), device=inputs["mask"].device)
        decision = RecordedDecision(statistics.columns(**inputs), weights)
        self.calls.append(Call(step, update, inputs, dict(scalars or {}), decision))
        return decision

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        self.scalars[step] = dict(values)

    def rollouts(self) -> list[Call]:
        """The calls before the updates, one per step."""
        return [call for call in self.calls if call.update is None]

"""A monitor that records what a trainer logs: real columns and real decisions, without a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trmon_client.core import acceptance, statistics
from trmon_client.core.columns import Columns
from trmon_client.core.policies.policy import Policy
from trmon_client.core.signals import batch_signals


@dataclass(frozen=True, eq=False)
class RecordedDecision:
    columns: Columns
    verdict: acceptance.Decision
    is_enforced: bool

    @property
    def mask(self) -> Tensor:
        accepted = torch.from_numpy(self.verdict.accepted.copy())
        return accepted if self.is_enforced else torch.ones_like(accepted)

    @property
    def sequence_weights(self) -> Tensor:
        return self.mask.float()

    @property
    def mask_rate(self) -> float:
        return self.verdict.mask_rate

    @cached_property
    def signals(self) -> dict[str, float]:
        return batch_signals.compute(self.columns)


@dataclass(frozen=True, eq=False)
class Call:
    step: int
    update: int | None
    chunks: int | None
    inputs: dict[str, Any]
    scalars: dict[str, float]
    decision: RecordedDecision


@dataclass(eq=False)
class RecordingMonitor:
    policy: Policy = field(default_factory=lambda: acceptance.preset("trm"))
    is_enforced: bool = False
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
        columns = statistics.columns(**inputs)
        decision = RecordedDecision(columns, acceptance.decide(columns, self.policy), self.is_enforced)
        self.calls.append(Call(step, update, chunks, inputs, dict(scalars or {}), decision))
        return decision

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        self.scalars[step] = dict(values)

    def rollouts(self) -> list[Call]:
        """The calls before the updates, one per step."""
        return [call for call in self.calls if call.update is None]

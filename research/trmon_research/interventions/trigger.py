"""Triggers: after which step of a run its owner acts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TypeAlias

import msgspec

from trmon.domain.analysis.collapse import NORMS_BEFORE, SPAN, smoothed
from trmon.domain.collapse_risk.risk_model import RiskModel, decode_model
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.errors import InvalidInput
from trmon_research.sweep.spooled_signals import StepRows

MISSING_AFTER = 200
"""Steps after which a signal that no row had is a mistake, and not one that needs history."""


class SignalTrigger(msgspec.Struct, frozen=True, kw_only=True, tag="signal"):
    """Fires when a signal has been above a threshold for some steps in a row.

    `model` is the path of a model of collapse whose risk is read in place of that of the shipped model.
    """

    signal: str = RISK
    threshold: float = 0.5
    for_steps: int = 3
    model: str | None = None

    def fires(self, steps: Sequence[StepRows]) -> bool:
        """Return whether it fires after the newest of a run's steps; a step without the signal is below.

        Errors: InvalidInput if none of the first 200 steps has the signal.
        """
        if len(steps) == MISSING_AFTER and all(math.isnan(step.value(self.signal)) for step in steps):
            raise InvalidInput("--trigger", f"no row has {self.signal}, which the trigger reads")
        newest = steps[-self.for_steps :]
        return len(newest) == self.for_steps and all(step.value(self.signal) > self.threshold for step in newest)

    def risk_model(self) -> RiskModel | None:
        """Return the model that is read in place of the shipped one. Errors: InvalidInput, OSError."""
        return None if self.model is None else decode_model(Path(self.model).read_bytes())


class DeclineTrigger(msgspec.Struct, frozen=True, kw_only=True, tag="decline"):
    """Fires when the reward of the rollouts has begun to fall, or the gradient norm spikes: what anybody can watch.

    The reward, smoothed over 20 steps, is a share below its peak, or a gradient norm is `spike` times the median of
    the up to 50 before it; not in the first 40 steps.
    """

    share_lost: float = 0.1
    spike: float = 6.0
    settled_after: int = 40

    def risk_model(self) -> None:
        """It reads no risk."""

    def fires(self, steps: Sequence[StepRows]) -> bool:
        """Return whether it fires after the newest of a run's steps."""
        if len(steps) <= self.settled_after:
            return False
        known = [reward for reward in smoothed([step.value("reward_mean") for step in steps]) if not math.isnan(reward)]
        has_fallen = bool(known) and known[-1] < (1 - self.share_lost) * max(known)
        *before, newest = [step.value("grad_norm") for step in steps[-NORMS_BEFORE - 1 :]]
        return has_fallen or (len(before) >= SPAN and newest > self.spike * median(before))


Trigger: TypeAlias = SignalTrigger | DeclineTrigger

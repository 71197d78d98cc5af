"""Keep the service's newest advice for a limited number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon_client.deciding.trainer_advice import TrainerAdvice

VALID_STEPS = 100
"""Trainer steps for which advice is valid, however the trainer numbers them: the service may be unreachable."""


class AdviceCache:
    """Updated in the uploader's thread, read in the trainer's."""

    def __init__(self) -> None:
        self._newest: TrainerAdvice | None = None
        self._updated_at = 0
        self._n_steps = 0
        self._step: int | None = None

    def update(self, advice: Mapping[str, Any]) -> None:
        """Store advice; the same advice again, as from a service that stopped judging, is not valid for longer."""
        if self._newest is None or advice.get("step") != self._newest.get("step"):
            self._updated_at = self._n_steps
        self._newest = TrainerAdvice(advice)

    def at(self, step: int) -> TrainerAdvice | None:
        """Return the advice at a step of the trainer; None if it is too old."""
        if step != self._step:
            self._step = step
            self._n_steps += 1
        return self._newest if self._n_steps - self._updated_at <= VALID_STEPS else None

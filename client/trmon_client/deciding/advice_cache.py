"""Counsel: the newest advice of the service, and how long it holds where no newer comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOLDS_STEPS = 100
"""Steps of the trainer, however it numbers them: advice is for the next ones, and the service may be away."""


class AdviceCache:
    """Hears in the courier's thread, is asked in the trainer's."""

    def __init__(self) -> None:
        self._newest: Mapping[str, Any] | None = None
        self._heard_at = 0
        self._n_steps = 0
        self._step: int | None = None

    def hear(self, advice: Mapping[str, Any]) -> None:
        """Take note of advice; the same again, as of a service that has stopped to judge, holds no longer for it."""
        if self._newest is None or advice.get("step") != self._newest.get("step"):
            self._heard_at = self._n_steps
        self._newest = advice

    def at(self, step: int) -> Mapping[str, Any] | None:
        """Return what is advised at a step of the trainer; None where that is too long ago."""
        if step != self._step:
            self._step = step
            self._n_steps += 1
        return self._newest if self._n_steps - self._heard_at <= HOLDS_STEPS else None

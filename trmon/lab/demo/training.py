"""The trainings of the demo."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection

HEALTHY, ILL, COLLAPSING = "healthy", "ill", "collapsing"


@dataclass(frozen=True, slots=True)
class Training:
    """One trainer to start: its run name, its injection and the number of steps."""

    name: str
    seed: int
    injection: Injection | None
    n_steps: int

    @property
    def onset_step(self) -> int:
        """The first step with the injection."""
        return LabConfig(self.seed, self.injection).onset_step


def demo_trainings(injection: Injection, *, seed: int, n_steps: int) -> tuple[Training, ...]:
    """Return the healthy training, the one with the injection and, unless it is the same, one whose reward collapses.

    The engines of the last one agree: its learner gets the rewards with the wrong sign.
    """
    cases = {HEALTHY: None, ILL: injection} | ({} if injection is Injection.REWARD else {COLLAPSING: Injection.REWARD})
    return tuple(Training(name, seed=seed, injection=fault, n_steps=n_steps) for name, fault in cases.items())

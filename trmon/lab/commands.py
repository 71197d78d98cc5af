"""The functions behind `trmon demo` and `trmon lab`."""

from __future__ import annotations

from dataclasses import replace

from trmon.domain.model.errors import InvalidInput
from trmon.lab.demo.run import DemoChoices, run_demo
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.lab.testbed.train_watched import train_watched

__all__ = ["DemoChoices", "lab_config_of", "run_demo", "injection", "train_watched"]


def injection(name: str) -> Injection:
    """Return the injection with a name. Errors: InvalidInput."""
    try:
        return Injection(name)
    except ValueError as error:
        known = ", ".join(known.value for known in Injection)
        raise InvalidInput("--inject", f"{name!r} must be one of {known}") from error


def lab_config_of(name: str | None, *, seed: int, n_steps: int) -> LabConfig:
    """Return the configuration of a run with an injection, or of a healthy one. Errors: InvalidInput."""
    config = LabConfig.healthy(seed) if name is None else LabConfig.injected(injection(name), seed)
    return replace(config, n_steps=n_steps)

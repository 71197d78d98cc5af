"""The functions behind `trmon demo` and `trmon lab`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from trmon.domain.errors import InvalidInput
from trmon.lab.demo.run import DemoChoices, run_demo
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.train_experiment_watched import train_experiment_watched
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.lab.testbed.train_watched import train_watched

__all__ = [
    "DemoChoices",
    "injection",
    "lab_config_of",
    "read_config",
    "run_demo",
    "train_experiment_watched",
    "train_watched",
]


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


def read_config(path: Path) -> ExperimentConfig:
    """Return the configuration in a JSON file. Errors: InvalidInput naming the field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ExperimentConfig)
    except msgspec.MsgspecError as error:
        raise InvalidInput("--config", f"{path}: {error}") from error

"""The functions behind `trmon demo` and `trmon lab`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from trmon.domain.model.errors import InvalidInput
from trmon.lab.demo.run import DemoChoices, run_demo
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.train_experiment_watched import train_experiment_watched
from trmon.lab.interventions.run_interventions import InterventionChoices, run_interventions
from trmon.lab.interventions.trigger import DeclineTrigger, SignalTrigger, Trigger
from trmon.lab.sweep.run_sweep import SweepChoices, run_sweep
from trmon.lab.sweep.sweep_plan import MECHANISMS, configurations_of
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.lab.testbed.train_watched import train_watched

__all__ = [
    "DemoChoices",
    "InterventionChoices",
    "SweepChoices",
    "chosen_trigger",
    "drawn_config",
    "injection",
    "lab_config_of",
    "read_config",
    "run_demo",
    "run_interventions",
    "run_sweep",
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


def drawn_config(mechanism: str, *, draw: int, seed: int, n_updates: int) -> ExperimentConfig:
    """Return one of the configurations that are drawn for a mechanism, counted from 0. Errors: InvalidInput."""
    if mechanism not in MECHANISMS:
        raise InvalidInput("--mechanism", f"{mechanism!r} must be one of {', '.join(MECHANISMS)}")
    return configurations_of(mechanism, seed=seed, n_updates=n_updates, n=draw + 1)[draw]


def read_config(path: Path) -> ExperimentConfig:
    """Return the configuration in a JSON file. Errors: InvalidInput naming the field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ExperimentConfig)
    except msgspec.MsgspecError as error:
        raise InvalidInput("--config", f"{path}: {error}") from error


def chosen_trigger(name: str, *, threshold: float, for_steps: int, model: Path | None = None) -> Trigger:
    """Return the trigger `risk` or `decline`. Args: threshold, for_steps, model: of the trigger `risk`."""
    return (
        SignalTrigger(threshold=threshold, for_steps=for_steps, model=None if model is None else str(model.absolute()))
        if name == "risk"
        else DeclineTrigger()
    )

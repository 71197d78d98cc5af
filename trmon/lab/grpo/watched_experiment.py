"""An experiment that reports to a service, or to a spool directory."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import torch

import trmon_client as trmon
from trmon.domain.errors import InvalidInput
from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import UpdateOutcome, train_experiment


def train_experiment_watched(
    config: ExperimentConfig, *, url: str | None, project: str, name: str | None, device: str = "cpu"
) -> Generator[UpdateOutcome, None, None]:
    """Train as configured, reporting to the service at `url`, and yield every update; name: default the config's.

    Closing the iterator ends the run early.
    Errors: InvalidInput if the client rejects the name, the address or a variable, or torch the device.
    """
    place = _usable_device(device)
    declared = msgspec.to_builtins(config)
    try:
        monitor = trmon.init(
            project=project,
            run=name or config.run_name,
            url=url,
            config=declared,
            owner="demo",
            tags=["lab", config.mechanism],
        )
    except ValueError as error:
        raise InvalidInput("lab", str(error)) from error
    with monitor:
        yield from train_experiment(config, monitor, device=place)
        # At its normal end nothing may be left in the spool, however slow the machine is.
        monitor.close(timeout=None)


def read_config(path: Path) -> ExperimentConfig:
    """Return the configuration in a JSON file. Errors: InvalidInput naming the field."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ExperimentConfig)
    except msgspec.MsgspecError as error:
        raise InvalidInput("--config", f"{path}: {error}") from error


def _usable_device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput("--device", f"torch cannot compute on {name!r}: {str(error).splitlines()[0]}") from error

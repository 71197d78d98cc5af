"""The run that a framework trains, as the integrations report it: its settings, its batches and its numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from trmon_client.config.redact import redact_values
from trmon_client.config.run_config import plain_config
from trmon_client.config.settings import ClientSettings, Mode, resolve_settings
from trmon_client.integrations.method_hooks import installed_version, warn_once
from trmon_client.monitor import Monitor


def begin_monitor(framework: str, describe: Callable[[], Mapping[str, Any] | None]) -> Monitor | None:
    """Return the monitor of a run, or None after a warning if its settings are invalid or cannot be read.

    Args: describe: reads the arguments of `run_settings` from the framework's objects; None: not this process.
    """
    try:
        given = describe()
        return None if given is None else Monitor(run_settings(framework, **given))
    except Exception as error:  # noqa: BLE001  the framework's objects may lack what `describe` reads
        warn_once(f"{framework} settings", f"{framework} trains without trmon: {error}")
        return None


def run_settings(
    framework: str, *, config: Any, project: Any = None, run: Any = None, rank: int = 0, world_size: int = 1
) -> ClientSettings:
    """Return the settings; TRMON_PROJECT and TRMON_RUN take precedence over the framework's names.

    Args: framework: its distribution. config: the framework's, a mapping or an object. rank, world_size:
        data-parallel; a driver is the only rank.
    Errors: ValueError naming the variable.
    """
    environment = os.environ
    names = {
        name: None if value is None or environment.get(f"TRMON_{name.upper()}") else _as_name(value)
        for name, value in {"project": project, "run": run}.items()
    }
    given = {**names, "config": described_config(framework, config), "rank": rank, "world_size": world_size}
    settings = resolve_settings(given, environment=environment)
    if settings.mode is Mode.ENFORCE:
        warn_once("enforce", f"trmon does not change the loss of {framework}: mode observe")
        settings = replace(settings, mode=Mode.OBSERVE)
    return settings


def described_config(framework: str, config: Any, *, given: Any = None) -> dict[str, Any]:
    """Return a run's configuration: the framework's without secrets, and over it what the user has given.

    Args: framework: its distribution. config, given: mappings or objects.
    """
    return {
        "framework": f"{framework} {installed_version(framework)}",
        **redact_values(plain_config(config)),
        **plain_config(given if given is not None else {}),
    }


def report_batch(monitor: Monitor | None, arguments: Callable[[], Mapping[str, Any] | None]) -> None:
    """Pass a batch to `log_batch`; no failure reaches the trainer. Args: arguments: computes them, None: no batch."""
    if monitor is not None:
        monitor.error_guard.guard(lambda: _log_batch(monitor, arguments()), otherwise=None)


def report_numbers(monitor: Monitor | None, step: int, values: Callable[[], Mapping[str, Any]]) -> None:
    """Pass the numbers among a framework's values to `log_scalars`; no failure reaches the trainer."""
    if monitor is not None:
        monitor.error_guard.guard(lambda: _log_numbers(monitor, step, values()), otherwise=None)


def batch_arguments(batch: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of a framework's batch under the names of `log_batch`; what is absent or None is left out."""
    return {argument: batch[name] for name, argument in names.items() if batch.get(name) is not None}


def _log_batch(monitor: Monitor, arguments: Mapping[str, Any] | None) -> None:
    if arguments is not None:
        monitor.log_batch(**arguments)


def _log_numbers(monitor: Monitor, step: int, values: Mapping[str, Any]) -> None:
    if numbers := {name: float(value) for name, value in values.items() if isinstance(value, Real)}:
        monitor.log_scalars(step, numbers)


def _as_name(value: Any) -> str:
    """Return a framework's name with "-" in place of the characters that names of trmon lack."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(value)).lstrip("._-")[:128]

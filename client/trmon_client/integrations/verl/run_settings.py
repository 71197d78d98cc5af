"""The settings of a run, from verl's configuration and TRMON_ variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trmon_client.config.settings import ClientSettings, Mode, resolve_settings
from trmon_client.integrations.trainer_log import trainer_config
from trmon_client.integrations.verl.fitting import warn_once


def run_settings(config: Mapping[str, Any], *, project: Any, run: Any) -> ClientSettings:
    """Return the settings; TRMON_PROJECT and TRMON_RUN take precedence over verl's names. One driver is the only rank.

    Errors: ValueError naming the variable.
    """
    environment = os.environ
    names = {
        name: None if environment.get(f"TRMON_{name.upper()}") else _as_name(value)
        for name, value in {"project": project, "run": run}.items()
    }
    given = {**names, "config": trainer_config("verl", config), "rank": 0, "world_size": 1}
    settings = resolve_settings(given, environment=environment)
    if settings.mode is Mode.ENFORCE:
        warn_once("enforce", "verl's workers compute the loss, which the driver cannot change: mode observe")
        settings = replace(settings, mode=Mode.OBSERVE)
    return settings


def _as_name(value: Any) -> str:
    """Return verl's name with "-" in place of the characters that names of trmon lack."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(value)).lstrip("._-")[:128]

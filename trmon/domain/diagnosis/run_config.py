"""Reads options from the configuration of a run, nested or with dotted names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def config_value(config: Mapping[str, Any], option: str) -> Any | None:
    """Return an option of a configuration: under its whole name, else in nested mappings; None if it is missing."""
    if option in config:
        return config[option]
    parts = option.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        inner = config.get(".".join(parts[:cut]))
        if isinstance(inner, Mapping):
            return config_value(inner, ".".join(parts[cut:]))
    return None


def config_number(config: Mapping[str, Any], option: str) -> float | None:
    """Return the number of an option; strings such as "1e-6", which YAML reads as text, are numbers too."""
    given = config_value(config, option)
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        number = float(given)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

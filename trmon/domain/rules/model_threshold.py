"""Thresholds of rules that the model of collapse states, so that a refitted model moves them with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.model.errors import InvalidInput
from trmon.domain.rules import yaml_values as values

MODEL_THRESHOLDS = ("warn_at", "page_at")
"""The probabilities in the file of the model that a rule may name."""
KEYS = ("model", "times")


def yaml_threshold(value: object, place: str) -> float:
    """Return a number, or a threshold of the model: `{model: warn_at}`, or a multiple, `{model: warn_at, times: 0.8}`.

    Errors: InvalidInput with the place, the expected and the given value.
    """
    if isinstance(value, dict):
        return _of_model(values.yaml_mapping(value, place), place)
    return values.yaml_number(value, place)


def _of_model(given: Mapping[str, Any], place: str) -> float:
    values.reject_unknown_keys(given, place, *KEYS)
    name = given.get("model")
    if name not in MODEL_THRESHOLDS:
        raise InvalidInput(
            f"{place}.model", f"must be one of {', '.join(MODEL_THRESHOLDS)}, and is {values.yaml_type_name(name)}"
        )
    threshold: float = getattr(shipped_model().file, name)
    return threshold * values.yaml_number(given.get("times", 1.0), f"{place}.times")

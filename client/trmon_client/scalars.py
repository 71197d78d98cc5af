"""Scalars: the trainer's own numbers, copied in its thread without waiting for a device, read in the sender's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trmon_client.core.arrays import is_tensor
from trmon_client.core.wire import MAX_NAME_LENGTH, MAX_SCALARS, JsonNumber
from trmon_client.losses import Loss, LossCounter


def capture(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy that later changes by the trainer cannot reach; tensors on a device stay there."""
    return {name: value.detach().clone() if is_tensor(value) else value for name, value in (values or {}).items()}


def to_wire(values: Mapping[str, Any], losses: LossCounter) -> dict[str, JsonNumber]:
    """Return the numbers among the values; others, unusable names and those beyond MAX_SCALARS are counted."""
    numbers: dict[str, JsonNumber] = {}
    for name, value in values.items():
        number = _number(value)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
        if number is None or not is_name or len(numbers) >= MAX_SCALARS:
            losses.count(Loss.SCALAR)
        else:
            numbers[name] = number
    return numbers


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None

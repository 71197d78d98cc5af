"""The trainer's own numbers: copied in its thread without waiting for a device, and read later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import is_tensor
from trmon_client.core.wire import MAX_NAME_LENGTH, MAX_SCALARS, JsonNumber
from trmon_client.safety.losses import LossCounter, LossReason


def capture_scalars(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values: tensors ready for a transfer, which copies them, arrays copied, and others as numbers.

    None for a value that is not one number, and for a distributed tensor of which this rank holds a part. The trainer's
    own objects are not kept: a meter may hold a loss with its autograd graph.
    """
    return {name: _captured(value) for name, value in (values or {}).items()}


def scalars_to_wire(values: Mapping[str, Any], losses: LossCounter) -> dict[str, JsonNumber]:
    """Return the numbers; count other values, invalid names and numbers beyond MAX_SCALARS as losses."""
    numbers: dict[str, JsonNumber] = {}
    for name, value in values.items():
        number = _number(value)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
        if number is None or not is_name or len(numbers) >= MAX_SCALARS:
            losses.count(LossReason.SCALAR)
        else:
            numbers[name] = number
    return numbers


def _captured(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.reshape(()).copy() if value.size == 1 else None
    return _single_number(value) if is_tensor(value) else _number(value)


def _single_number(tensor: Any) -> Any:
    if tensor.numel() != 1:
        return None
    number = tensor.detach()
    if callable(getattr(number, "full_tensor", None)):
        number = _full_tensor(number)
    if number is None or number.is_meta:
        return None
    number = number.reshape(())
    # numpy lacks torch's short floats, such as bfloat16.
    return number.float() if number.is_floating_point() and number.itemsize < 4 else number


def _full_tensor(tensor: Any) -> Any | None:
    """Return a replicated tensor; None for a sharded one: gathering it would take a collective."""
    return tensor.to_local() if all(placement.is_replicate() for placement in tensor.placements) else None


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        return None

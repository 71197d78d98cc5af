"""The labels of each sequence: advantage, reward, group, versions, truncation; reduced if given per token."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.schema import COLUMNS
from trmon_client.core.inputs.checked_inputs import CheckedInputs


def sequence_labels(inputs: CheckedInputs, *, valid: Array) -> dict[str, Array]:
    """Return the columns of the given labels, [B], as copies.

    Args: valid: bool [B, T]; for a sequence without valid tokens, a label given per token is NaN or -1.
    Source: formulas, section 3.
    """
    found: dict[str, Any] = {}
    if inputs.advantages is not None:
        found["advantage"] = _mean_of_valid(inputs, inputs.advantages, valid)
    if inputs.rewards is not None:
        found["reward"] = inputs.rewards
    if inputs.group_ids is not None:
        found["group_id"] = inputs.group_ids
    if inputs.versions is not None:
        found["version_min"], found["version_max"] = _range_of_valid(inputs, inputs.versions, valid)
    if inputs.truncated is not None:
        found["truncated"] = inputs.truncated != 0
    # The trainer may overwrite its memory before the columns are read.
    return {name: inputs.functions.copied(array, COLUMNS[name].dtype) for name, array in found.items()}


def _mean_of_valid(inputs: CheckedInputs, given: Array, valid: Array) -> Array:
    if given.ndim == 1:
        return given
    xp = inputs.functions
    return xp.sum(xp.where(valid, xp.cast(given, "f8"), 0.0), -1) / xp.count(valid, -1)


def _range_of_valid(inputs: CheckedInputs, given: Array, valid: Array) -> tuple[Array, Array]:
    if given.ndim == 1:
        return given, given
    xp = inputs.functions
    versions = xp.cast(given, "i8")
    smallest, largest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    oldest = xp.min(xp.where(valid, versions, largest), -1)
    newest = xp.max(xp.where(valid, versions, smallest), -1)
    has_tokens = xp.count(valid, -1) > 0
    return xp.where(has_tokens, oldest, -1), xp.where(has_tokens, newest, -1)

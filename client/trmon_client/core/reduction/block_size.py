"""The number of positions that are reduced at a time."""

from __future__ import annotations

import numpy as np

from trmon_client.core.inputs.checked_inputs import CheckedInputs

BLOCK_TOKENS = 1 << 14
"""Positions of a block on the CPU: three pairs of float64 take 384 KiB, which fits in the cache."""
DEVICE_BLOCK_TOKENS = 1 << 18
"""Positions of a block on a device: enough to hide the kernel launches, little compared with the trainer's memory."""


def block_tokens(inputs: CheckedInputs) -> int:
    """Return the positions of a block on the device of the arguments."""
    return BLOCK_TOKENS if isinstance(inputs.mask, np.ndarray) else DEVICE_BLOCK_TOKENS

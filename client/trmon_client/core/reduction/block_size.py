"""How many positions are reduced at a time."""

from __future__ import annotations

import numpy as np

from trmon_client.core.inputs.checked_inputs import CheckedInputs

BLOCK_TOKENS = 1 << 14
"""Positions of a block on the CPU: three pairs of float64 take 384 KiB, which the cache keeps."""
DEVICE_BLOCK_TOKENS = 1 << 18
"""Positions of a block on a device: enough to hide the launches, little beside the trainer's own memory."""


def block_tokens(inputs: CheckedInputs) -> int:
    """Return the positions of a block where these arguments lie."""
    return BLOCK_TOKENS if isinstance(inputs.mask, np.ndarray) else DEVICE_BLOCK_TOKENS

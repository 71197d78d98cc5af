"""Turns of agents: which tokens of a trace are of which turn."""

from __future__ import annotations

from typing import Any

from trmon_client.core.arrays import Array, functions_of, is_tensor


def turn_ids_of_mask(mask: Any) -> Array:
    """Return the turn of each token where every run of counting tokens is a turn, as in traces with masked tool tokens.

    Args: mask: numpy or torch [B, T], not 0 where a token counts.
    Returns: int64 [B, T] of the mask's kind, on its device: from 0 in each sequence, -1 where the mask is 0.
    """
    counts = mask != 0
    begins = counts & True
    begins[:, 1:] &= ~counts[:, :-1]
    ids = begins.cumsum(1) - 1
    if is_tensor(ids):
        ids = ids.long()
    return functions_of(ids).where(counts, ids, -1)

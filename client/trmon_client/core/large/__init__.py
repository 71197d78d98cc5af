"""The reduction of large batches of float32 on the host: what `reduction` gives, in a third of its time.

Block by block through buffers that stay in the cache, in float32 where that loses nothing and in float64 where it
would: k3, 1 - p and what Pearson's correlation is made of.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trmon_client.core.arrays import n_threads
from trmon_client.core.clipping import ClipRange
from trmon_client.core.columns import Columns
from trmon_client.core.inputs import Inputs
from trmon_client.core.large.block_columns import block_columns
from trmon_client.core.large.scratch import Scratch

BLOCK_TOKENS = 1 << 16
"""Positions of a block: more would leave the cache, and with fewer two threads wait for each other at every step."""
LARGE_TOKENS = 1 << 13
"""Smaller batches gain nothing."""
LONG_ROW = 256
"""Shorter rows are reduced faster side by side."""
MAX_THREADS = 2
"""More would mostly wait for the interpreter."""
BLOCKS_A_THREAD = 4
"""A thread takes about as long as one block to start."""


def is_large(inputs: Inputs) -> bool:
    """Return whether these are best reduced here: many tokens, in long rows, on the host, that float32 holds."""
    n_sequences, horizon = inputs.mask.shape
    if not isinstance(inputs.mask, np.ndarray) or horizon < LONG_ROW or n_sequences * horizon < LARGE_TOKENS:
        return False
    # Half precision is no cheaper, and has no numbers for the bounds of what is valid.
    return all(array.itemsize == 4 for array in inputs.logprobs.values())


def reduced(inputs: Inputs, *, clip: ClipRange) -> Columns:
    """Return the columns of a large batch, by at most as many threads as the trainer lets torch have.

    The threads end with the call: a forked trainer never misses one. Source: formulas, section 3.
    """
    blocks = list(enumerate(inputs.blocks(max_tokens=BLOCK_TOKENS)))
    waiting, parts = iter(blocks), [Columns({})] * len(blocks)

    def work() -> None:
        scratch = Scratch.mine(max(BLOCK_TOKENS, inputs.mask.shape[1]))
        with np.errstate(all="ignore"):
            for index, block in waiting:
                trimmed = block.trimmed()
                parts[index] = block_columns(trimmed, scratch.shaped(trimmed.mask.shape), clip=clip)

    n_helpers = min(MAX_THREADS, n_threads(), len(blocks) // BLOCKS_A_THREAD) - 1
    if n_helpers < 1:
        work()
        return Columns.merge(*parts)
    with ThreadPoolExecutor(n_helpers, thread_name_prefix="trmon-columns") as pool:
        helpers = [pool.submit(work) for _ in range(n_helpers)]
        work()
        for helper in helpers:
            helper.result()
    return Columns.merge(*parts)
